"""Maps with keys that are not text: no table holds them, and nothing turns them into text unasked."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import SourceError, TableError
from lakefeed.reports.plan.plan import plan_run

KEYS: dict[str, tuple[pa.DataType, Any, str]] = {
    "int": (pa.int32(), 7, "7"),
    "long": (pa.int64(), 10**15, "1000000000000000"),
    "date": (pa.date32(), dt.date(2026, 11, 1), "2026-11-01"),
    "double": (pa.float64(), 1.5, "1.5"),
    "boolean": (pa.bool_(), True, "true"),
    "decimal(10,2)": (pa.decimal128(10, 2), Decimal("1.10"), "1.10"),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        dt.datetime(2026, 11, 1, tzinfo=dt.UTC),
        "2026-11-01T00:00:00.000000Z",
    ),
    "binary": (pa.binary(), b"\xff", "/w=="),
    "struct<a: int>": (pa.struct([("a", pa.int32())]), {"a": 1}, '{"a":1}'),
    "array<int>": (pa.list_(pa.int32()), [1], "[1]"),
}


def pipeline(folder: Path, table: str = "") -> Pipeline:
    file = folder / "shop.yaml"
    source = "{s: {type: delta, path: source}}"
    file.write_text(f"name: shop\nsources: {source}\ntables: {{t: {{path: t, from: s{table}}}}}\n")
    return Pipeline.from_file(file)


def rows(folder: Path) -> list[dict[str, Any]]:
    return DeltaTable(folder / "t").to_pyarrow_table().to_pylist()


def maps(key_type: pa.DataType, key: object) -> pa.Table:
    return pa.table({"id": [1], "m": pa.array([[(key, "v")]], pa.map_(key_type, pa.string()))})


@pytest.mark.parametrize("words", KEYS)
def test_map_with_other_keys_stops_the_table_until_it_is_declared_as_json_or_dropped(
    tmp_path: Path, words: str
) -> None:
    key_type, key, text = KEYS[words]
    write_deltalake(tmp_path / "source", maps(key_type, key))

    message = (
        f"column m has a map with keys of type {words}; tables have maps with keys of type string only, and "
        "other keys are not turned into text.\n"
        "Declare it as JSON text, `schema: {m: json}`, or leave it out, `drop: [m]`."
    )
    with pytest.raises(TableError) as raised:
        run_inline(pipeline(tmp_path))
    assert str(raised.value) == f"table t: {message}"
    assert plan_run(pipeline(tmp_path)).tables[0].refused == message
    run_inline(pipeline(tmp_path, ", drop: [m]"))
    assert rows(tmp_path) == [{"id": 1}]
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "source").rename(other / "source")
    run_inline(pipeline(other, ", schema: {m: json}"))
    (row,) = rows(other)
    assert (row["id"], json.loads(row["m"])) == (1, {text: "v"})


def test_keys_inside_other_columns_are_refused_as_well(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.string()))]))
    write_deltalake(tmp_path / "source", pa.table({"id": [1], "deep": pa.array([[{"m": [(1, "v")]}]], kind)}))

    for declared in ("", ', schema: {deep: "array<struct<other: long>>"}'):
        with pytest.raises(TableError, match="column deep has a map with keys of type int;"):
            run_inline(pipeline(tmp_path, declared))
    shutil.rmtree(tmp_path / "t")
    run_inline(pipeline(tmp_path, ", schema: {deep: json}"))

    (row,) = rows(tmp_path)
    assert json.loads(row["deep"]) == [{"m": {"1": "v"}}]


def test_a_column_that_is_declared_with_keys_of_text_takes_keys_that_have_a_text(tmp_path: Path) -> None:
    declared = ', schema: {m: "map<string, string>"}'
    write_deltalake(tmp_path / "source", maps(pa.int32(), 7))

    run_inline(pipeline(tmp_path, declared))

    assert rows(tmp_path) == [{"m": [("7", "v")], "id": 1}]
    other = tmp_path / "other"
    other.mkdir()
    write_deltalake(other / "source", maps(pa.binary(), b"7"))
    with pytest.raises(TableError, match="column m has a map with keys of type binary;"):
        run_inline(pipeline(other, declared))


def test_columns_that_are_not_added_may_have_any_keys(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "source", maps(pa.int32(), 7))

    run_inline(pipeline(tmp_path, ", schema: {id: long}, evolve: {new_column: ignore}"))

    assert rows(tmp_path) == [{"id": 1}]


def test_metadata_without_columns_is_an_error_of_the_source(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "source", pa.table({"id": [1]}))
    entry = tmp_path / "source/_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        action.get("metaData", {}).pop("schemaString", None)
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions))

    with pytest.raises(SourceError, match="the metadata of version 0 has no schemaString") as raised:
        run_inline(pipeline(tmp_path))

    assert not raised.value.retryable
