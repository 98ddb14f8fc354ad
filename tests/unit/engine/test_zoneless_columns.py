"""Timestamps without a zone, in tables that another engine made: fed by the same rules as all timestamps."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.sources import source_of
from lakefeed.sources.samples import SampleSource
from lakefeed.testing import Sample
from support.ledger import dead_letters

ZONELESS = pa.timestamp("us")
SOME = dt.datetime(2026, 1, 1)
EVENTS: list[dict[str, Any]] = [
    {"id": 1, "at": 1700000000000},
    {"id": 2, "at": "2026-11-15T12:00:00+02:00"},
    {"id": 3, "in": {"at": 1700000000000}},
    {"id": 4, "in": {"at": "2026-11-15T10:00:00"}},
]
TEN = dt.datetime(2026, 11, 15, 10)


@pytest.mark.parametrize(
    ("schema", "landed", "refused"),
    [
        ("", {2: TEN, 4: TEN}, {0: "bad_timestamp", 2: "bad_timestamp"}),
        (
            "schema: {at: timestamp(ms)}",
            {1: dt.datetime(2023, 11, 14, 22, 13, 20), 4: TEN},
            {1: "wrong_type", 2: "bad_timestamp"},
        ),
    ],
)
def test_a_number_is_a_time_only_where_its_unit_is_declared(
    schema: str, landed: dict[int, Any], refused: dict[int, str], tmp_path: Path
) -> None:
    path = tmp_path / "times"
    rows = {
        "id": pa.array([0]),
        "at": pa.array([SOME], ZONELESS),
        "in": pa.array([{"at": SOME}], pa.struct([("at", ZONELESS)])),
    }
    write_deltalake(path, pa.table(rows))
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: kafka, brokers: "localhost:1", topics: [clicks], format: json}}}}
tables: {{times: {{path: times, from: clicks, {schema}}}}}
"""
    )
    pipeline = Pipeline.from_file(file)
    samples = [Sample.model_validate({"text": json.dumps(event)}) for event in EVENTS]
    given = SampleSource.of(source_of(pipeline, "clicks"), "clicks", samples)

    run_inline(pipeline.model_copy(update={"sources": {"clicks": given}, "give_up_after": 5.0}))

    table = DeltaTable(path)
    found = {row["id"]: row["at"] or row["in"]["at"] for row in table.to_pyarrow_table().to_pylist()}
    assert found == {0: SOME, **landed}
    letters = dead_letters(tmp_path / "shop_dead_letters")
    assert {letter["offset"]: letter["code"] for letter in letters} == refused
    for each in table.file_uris():
        assert pq.read_schema(each).field("at").type == ZONELESS
