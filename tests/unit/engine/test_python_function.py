"""`python` in a whole run: columns declared and inferred, dead letters and their replay, and the ledger."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, TableError
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.rows.user_code import UserFunction, collect
from lakefeed.testing import Landed, Sample, run_samples
from support.ledger import assert_each_once, dead_letters, table_ids

IMPORTS = "import numpy as np\nimport pyarrow as pa\nimport pyarrow.compute as pc\n\n"
HEAD = """\
name: shop
sources:
  clicks: {type: kafka, brokers: "localhost:9", topics: [clicks], format: json}
tables:
  clicks:
    path: clicks
    from: clicks
    python: clean:enrich
"""


def land(folder: Path, table: str, code: str, *events: dict[str, Any]) -> Landed:
    """Send events through a table with these further keys, and with this function."""
    file = folder / "shop.yaml"
    (folder / "clean.py").write_text(IMPORTS + dedent(code))
    file.write_text(HEAD + "".join(f"    {line}\n" for line in dedent(table).splitlines()))
    samples = {"clicks": [Sample(json=event) for event in events]}
    return run_samples(file, samples, folder / "landed")


GROSS = """
    def enrich(batch):
        at = batch.schema.get_field_index("gross")
        return batch.set_column(at, "gross", pc.multiply(batch["price"], 2))
"""


def test_a_declared_column_is_filled_by_the_function(tmp_path: Path) -> None:
    landed = land(
        tmp_path, "schema: {id: long not null, price: double, gross: double}", GROSS, {"id": 1, "price": 2.5}
    )

    assert landed.rows("clicks") == [{"id": 1, "price": 2.5, "gross": 5.0}]


def test_columns_that_nobody_declared_are_those_that_the_function_returns(tmp_path: Path) -> None:
    code = """
        def enrich(batch):
            return batch.drop_columns(["raw"]).append_column("gross", pc.multiply(batch["price"], 2))
    """

    landed = land(tmp_path, "metadata: [_offset]", code, {"id": 1, "price": 2.5, "raw": "x"}, {"id": 2})

    assert landed.rows("clicks") == [
        {"id": 1, "price": 2.5, "_offset": 0, "gross": 5.0},
        {"id": 2, "price": None, "_offset": 1, "gross": None},
    ]


def test_rows_are_dropped_and_multiplied_and_the_log_proves_that_every_event_was_read(tmp_path: Path) -> None:
    code = """
        def enrich(batch):
            numbers = batch["event_id"].to_numpy()
            return batch.take(pa.array(np.repeat(np.arange(len(numbers)), numbers % 3)))
    """
    file = tmp_path / "shop.yaml"
    (tmp_path / "clean.py").write_text(IMPORTS + dedent(code))
    file.write_text(
        """\
name: shop
sources: {clicks: {type: generate, rows: 1000, partitions: 2, bad_ratio: 0.01}}
tables:
  clicks: {path: clicks, from: clicks, schema: {event_id: long}, evolve: ignore, python: "clean:enrich"}
flush: {rows: 300}
"""
    )

    pipeline = Pipeline.from_file(file)
    run_inline(pipeline)

    dead = {one["offset"] * 2 + one["partition"] for one in dead_letters(tmp_path / "shop_dead_letters")}
    wanted = sorted(number for number in range(1000) if number not in dead for _ in range(number % 3))
    assert len(dead) == 10
    assert sorted(table_ids(tmp_path / "clicks")) == wanted
    assert [report.findings for report in verify(pipeline).tables] == [[]]


def test_an_event_that_makes_it_raise_is_a_dead_letter_with_the_line_and_can_be_replayed(
    tmp_path: Path,
) -> None:
    (tmp_path / "clean.py").write_text(
        "def enrich(batch):\n    if 7 in batch['event_id'].to_pylist():\n        raise ValueError('seven')\n"
        "    return batch\n"
    )
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {clicks: {type: generate, rows: 20}}
tables:
  clicks: {path: clicks, from: clicks, schema: {event_id: long}, evolve: ignore, python: "clean:enrich"}
"""
    )
    run_inline(Pipeline.from_file(file))

    (letter,) = dead_letters(tmp_path / "shop_dead_letters")
    assert (letter["stage"], letter["code"], letter["error"], letter["offset"]) == (
        "python", "ValueError", "seven (clean.py, line 3)", 7,
    )  # fmt: skip
    assert json.loads(letter["payload"])["event_id"] == 7

    (tmp_path / "clean.py").write_text("def enrich(batch):\n    return batch\n")
    (report,) = replay(Pipeline.from_file(file), DeadLetterFilter())

    assert report.rows == 1
    assert_each_once(range(20), table_ids(tmp_path / "clicks"))
    assert [one.findings for one in verify(Pipeline.from_file(file)).tables] == [[]]


def test_all_rows_of_an_event_share_its_fate(tmp_path: Path) -> None:
    code = """
        def enrich(batch):
            three = batch.take(pa.array(np.repeat(np.arange(batch.num_rows), 3)))
            texts = pa.array([f"{at % 3}" for at in range(three.num_rows - 1)] + ["x"])
            return three.set_column(1, "part", texts)
    """

    landed = land(tmp_path, 'schema: {id: long, part: "decimal(3,0)"}', code, {"id": 1}, {"id": 2})

    assert [row["id"] for row in landed.rows("clicks")] == [1, 1, 1]
    assert [(one["stage"], one["code"], one["offset"]) for one in landed.dead_letters("clicks")] == [
        ("schema", "bad_decimal", 1)
    ]


def test_a_column_that_the_function_returns_later_is_added(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {clicks: {type: generate, rows: 10}}
tables: {clicks: {path: clicks, from: clicks, python: "clean:enrich"}}
"""
    )
    (tmp_path / "clean.py").write_text(
        "def enrich(batch):\n    return batch.select(['event_id', '_event'])\n"
    )
    run_inline(Pipeline.from_file(file))
    (tmp_path / "clean.py").write_text(
        "def enrich(batch):\n    return batch.select(['event_id', 'brand', '_event'])\n"
    )
    run_inline(Pipeline.from_file(file, ["sources.clicks.rows=20"]))

    rows = DeltaTable(tmp_path / "clicks").to_pyarrow_table()
    assert rows.column_names == ["event_id", "brand"]
    assert_each_once(range(20), rows.column("event_id").to_pylist())
    assert rows.column("brand").null_count == 10


def test_a_result_that_is_no_batch_stops_the_table_and_nothing_lands(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"returned NoneType, not a pyarrow\.RecordBatch"):
        land(tmp_path, "schema: {id: long}", "def enrich(batch): pass\n", {"id": 1})


def test_a_function_travels_to_a_machine_that_has_not_the_folder(tmp_path: Path) -> None:
    (tmp_path / "clean.py").write_text("import words\ndef enrich(batch):\n    return words.y\n")
    (tmp_path / "words.py").write_text("y = 7\n")
    packed = pickle.dumps(UserFunction("clean:enrich", collect(["clean:enrich"], tmp_path)))
    for file in tmp_path.glob("*.py"):
        file.unlink()

    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).load()(None))"
    done = subprocess.run([sys.executable, "-c", program], input=packed, capture_output=True, timeout=120)

    assert done.stdout == b"7\n", done.stderr
