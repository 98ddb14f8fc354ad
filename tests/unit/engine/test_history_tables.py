"""Tables of changes in a pipeline, without Spark: `mode: history`, and `updates: merge_on_read`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.errors import PipelineFileError
from lakefeed.pipeline.test_file import Sample
from lakefeed.tables.data_files import data_files
from lakefeed.testing import run_samples
from support.delta_tables import open_any

FILE = """\
name: shop
sources: {{events: {{type: kafka, brokers: "localhost:9", topics: [events], format: json}}}}
tables:
  customers:
    path: lake/customers
    from: events
    keys: id
    sequence_by: at
    {more}
"""


def pipeline(folder: Path, more: str) -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(FILE.format(more=more))
    return Pipeline.from_file(file)


def land(folder: Path, more: str, *events: dict[str, Any]) -> list[dict[str, Any]]:
    samples = {"events": [Sample(json=event) for event in events]}
    landed = run_samples(pipeline(folder, more), samples, folder / "run")
    table = DeltaTable(landed.path("customers"))
    return pa.RecordBatchReader.from_stream(table.scan()).read_all().to_pylist()


HISTORY = "mode: history\n    is_current: now\n    metadata: true"


@pytest.mark.parametrize("updates", ["copy_on_write", "merge_on_read"])
def test_a_history_table_is_made_and_filled(updates: str, tmp_path: Path) -> None:
    rows = land(
        tmp_path,
        f"{HISTORY}\n    updates: {updates}",
        {"id": 1, "at": 10, "name": "A"},
        {"id": 1, "at": 20, "name": "B"},
        {"id": 1, "at": 15, "name": "A"},
        {"id": 2, "at": 1, "name": "X"},
    )

    found = sorted((r["id"], r["name"], r["valid_from"], r["valid_to"], r["now"]) for r in rows)
    assert found == [(1, "A", 10, 20, False), (1, "B", 20, None, True), (2, "X", 1, None, True)]


def test_merge_on_read_turns_deletion_vectors_on_and_nothing_else(tmp_path: Path) -> None:
    more = "mode: upsert\n    updates: merge_on_read"

    rows = land(tmp_path, more, {"id": 1, "at": 1, "name": "A"}, {"id": 1, "at": 2, "name": "B"})

    assert [row["name"] for row in rows] == ["B"]
    (path,) = {log.parent for log in (tmp_path / "run").rglob("_delta_log") if "customers" in str(log)}
    protocol = DeltaTable(path).protocol()
    assert (protocol.min_reader_version, protocol.reader_features) == (3, ["deletionVectors"])
    assert sorted(protocol.writer_features or ()) == ["appendOnly", "deletionVectors", "invariants"]
    assert data_files(open_any(path))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("mode: history\n    track: [name]\n    track_except: [note]", "track_except: has no effect beside"),
        ("mode: upsert\n    track: [name]", "track: has an effect only with `mode: history`"),
        ("mode: history\n    schema: {id: long, at: long, valid_to: long}", "`valid_to` adds a column"),
        ("mode: upsert\n    schema: {id: double, at: long}", "double cannot be part of a key"),
        ("mode: upsert\n    schema: {id: long, at: boolean}", "boolean gives changes no order"),
        (
            "mode: history\n    schema: {id: long, at: long}\n    track: [nam]",
            "track: the table has no column",
        ),
    ],
)
def test_what_cannot_be_is_said_before_the_run(more: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError) as refused:
        pipeline(tmp_path, more)

    assert problem in str(refused.value)


def test_history_without_a_sequence_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE.format(more="mode: history").replace("    sequence_by: at\n", ""))

    with pytest.raises(PipelineFileError, match="sequence_by: required with `mode: history`"):
        Pipeline.from_file(file)
