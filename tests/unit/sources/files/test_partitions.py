"""Columns out of folders: `day=2026-11-17`."""

from __future__ import annotations

import datetime as dt
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.reprocess.replay import replay
from support.landing import Landing

HIVE = "format: json, partitions: hive"


def test_folders_are_columns_of_declared_types_and_win_over_fields(tmp_path: Path) -> None:
    landing = Landing(tmp_path, HIVE, "schema: {id: long, day: date, shop: int}")
    landing.put("day=2026-11-17/shop=1/a.json", '{"id": 1, "shop": 99}\n{"id": 2}')
    landing.put("day=2026-11-18/shop=__HIVE_DEFAULT_PARTITION__/b.json", '{"id": 3}')
    landing.put("day=soon/c.json", '{"id": 4}')

    landing.run()

    assert landing.rows("id", "day", "shop") == [
        {"id": 1, "day": dt.date(2026, 11, 17), "shop": 1},
        {"id": 2, "day": dt.date(2026, 11, 17), "shop": 1},
        {"id": 3, "day": dt.date(2026, 11, 18), "shop": None},
    ]
    assert [one["code"] for one in landing.letters()] == ["bad_date"]
    assert landing.is_sound


def test_numbers_of_folders_may_begin_with_zeros_and_stay_as_they_are_in_text(tmp_path: Path) -> None:
    landing = Landing(tmp_path, HIVE, "schema: {id: long, year: short, month: int, day: long, shop: string}")
    landing.put("year=2026/month=09/day=01/shop=007/a.json", '{"id": 1}')
    landing.put("year=2026/month=10/day=00/shop=1/b.json", '{"id": 2}')
    landing.put("year=2026/month=x9/day=1/shop=1/c.json", '{"id": 3}')

    landing.run()

    assert landing.rows() == [
        {"id": 1, "year": 2026, "month": 9, "day": 1, "shop": "007"},
        {"id": 2, "year": 2026, "month": 10, "day": 0, "shop": "1"},
    ]
    assert [one["error"] for one in landing.letters()] == ['month: expected int, got "x9"']
    assert landing.is_sound


def test_columns_of_folders_are_inferred_as_text_and_replayed_with_letters(tmp_path: Path) -> None:
    landing = Landing(tmp_path, HIVE, "schema: {id: long}")
    landing.put("a=x%20y/1.json", '{"id": 1}\n{"id": "no"}')
    landing.run()
    inferred = landing.rows("id", "a")
    landing.set(HIVE, "schema: {id: long}, evolve: {new_column: add, type_change: rescue}")

    replay(Pipeline.from_file(landing.file), DeadLetterFilter())

    assert inferred == [{"id": 1, "a": "x y"}]
    assert landing.rows("id", "a") == [{"id": 1, "a": "x y"}, {"id": None, "a": "x y"}]
    assert landing.letters() == []


def test_folders_of_parquet_files_are_columns_too(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: parquet, partitions: hive", "schema: {id: long, day: date}")
    out = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2]}), out)
    landing.put("day=2026-11-17/a.parquet", out.getvalue())

    landing.run()

    assert {one["day"] for one in landing.rows("id", "day")} == {dt.date(2026, 11, 17)}
