"""Columns of Parquet files in every type that writers give them: exact, or refused alone."""

from __future__ import annotations

import datetime as dt
import io
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed.columns.column_types import type_text
from lakefeed.errors import TableError
from support.landing import Landing

ONE = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
NOON = dt.datetime(2026, 11, 15, 12, 0, 0, 123456, dt.UTC)
NAIVE = NOON.replace(tzinfo=None)
HALF_PAST = dt.time(10, 30, 0, 500_000)
BERLIN = "Europe/Berlin"


def file_of(column: pa.Array, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": range(len(column)), "c": column}), out, **options)
    return out.getvalue()


def landed(tmp_path: Path, content: bytes, table: str = "evolve: add") -> Landing:
    landing = Landing(tmp_path, "format: parquet", table)
    landing.put("a.parquet", content)
    landing.run()
    return landing


def types(tmp_path: Path) -> dict[str, str]:
    return {
        one.name: type_text(one.type) for one in pa.schema(DeltaTable(tmp_path / "rows").schema().to_arrow())
    }


def values(tmp_path: Path, column: str = "c") -> list[Any]:
    table = pa.table(DeltaTable(tmp_path / "rows").to_pyarrow_table())
    return list(table.sort_by("id")[column].to_pylist())


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        (pa.array([HALF_PAST], pa.time32("ms")), "string", "10:30:00.5"),
        (pa.array([HALF_PAST], pa.time64("us")), "string", "10:30:00.5"),
        (pa.array([HALF_PAST], pa.time64("ns")), "string", "10:30:00.5"),
        (pa.array([1], pa.time64("ns")), "string", "00:00:00.000000001"),
        (pa.array([0, 86_400_000_000], pa.int64()).view(pa.time64("us")), "string", ["00:00:00", "24:00:00"]),
        (pa.array([-1], pa.int64()).view(pa.time64("us")), "string", "-00:00:00.000001"),
        (pa.array([-1, 2], pa.duration("s")), "long", [-1_000_000, 2_000_000]),
        (pa.array([1500], pa.duration("ms")), "long", 1_500_000),
        (pa.array([2**62], pa.duration("us")), "long", 2**62),
        (pa.array([-1999, 1999], pa.duration("ns")), "long", [-1, 1]),
        (pa.array([ONE.bytes], pa.uuid()), "string", str(ONE)),
        (pa.array([1.5, float("inf")], pa.float16()), "float", [1.5, float("inf")]),
        (pa.array([2**63 - 1], pa.uint64()), "long", 2**63 - 1),
        (pa.array([2**32 - 1], pa.uint32()), "long", 2**32 - 1),
        (pa.array(["x"], pa.large_string()), "string", "x"),
        (pa.array(["x"], pa.string_view()), "string", "x"),
        (pa.array([b"\0"], pa.large_binary()), "binary", b"\0"),
        (pa.array(['{"a":1}'], pa.json_()), "string", '{"a":1}'),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "string", ["a", "b", "a"]),
        (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), "array<long>", [[1, 2], None]),
        (pa.array([[1], None, [2, 3]], pa.list_view(pa.int64())), "array<long>", [[1], None, [2, 3]]),
        (pa.array([[1], []], pa.large_list(pa.int32())), "array<int>", [[1], []]),
        (pa.array([Decimal("1.5")], pa.decimal32(5, 2)), "decimal(5,2)", Decimal("1.50")),
        (pa.array([Decimal("1.5")], pa.decimal256(60, 4)), "decimal(38,4)", Decimal("1.5000")),
        (pa.array([NAIVE], pa.timestamp("ns")), "timestamp", NOON),
        (pa.array([NOON], pa.timestamp("ns", BERLIN)), "timestamp", NOON),
        (
            pa.array([-1], pa.timestamp("ns")),
            "timestamp",
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
        ),
        (pa.array([dt.date(2026, 11, 15)], pa.date64()), "date", dt.date(2026, 11, 15)),
        (
            pa.array(
                [{"a": [{"t": HALF_PAST, "u": "x"}]}],
                pa.struct(
                    [("a", pa.large_list(pa.struct([("t", pa.time64("us")), ("u", pa.large_string())])))]
                ),
            ),
            "struct<a: array<struct<t: string, u: string>>>",
            {"a": [{"t": "10:30:00.5", "u": "x"}]},
        ),
        (
            pa.array(
                [[("k", [("l", 5)])], None], pa.map_(pa.string(), pa.map_(pa.string(), pa.duration("us")))
            ),
            "map<string, map<string, long>>",
            [[("k", [("l", 5)])], None],
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_column_lands_exactly(tmp_path: Path, column: pa.Array, kind: str, expected: Any) -> None:
    landing = landed(tmp_path, file_of(column))

    assert types(tmp_path) == {"id": "long", "c": kind}
    assert values(tmp_path) == (expected if len(column) > 1 else [expected])
    assert not (tmp_path / "shop_dead_letters").exists()
    assert landing.is_sound


def test_int96_of_spark_is_a_timestamp(tmp_path: Path) -> None:
    landed(tmp_path, file_of(pa.array([NAIVE]), use_deprecated_int96_timestamps=True))

    assert types(tmp_path)["c"] == "timestamp"
    assert values(tmp_path) == [NOON]


def test_column_of_nulls_is_no_column_until_a_file_has_a_value(tmp_path: Path) -> None:
    landing = landed(tmp_path, file_of(pa.nulls(2)))
    assert types(tmp_path) == {"id": "long"}

    landing.put("b.parquet", file_of(pa.array([None, 5], pa.int64())))
    landing.run()

    assert types(tmp_path) == {"id": "long", "c": "long"}
    assert sorted(values(tmp_path), key=str) == [5, None, None, None]


@pytest.mark.parametrize(
    ("column", "table", "error"),
    [
        (
            pa.array([1, 2**64 - 1], pa.uint64()),
            "evolve: add",
            f"c: expected long ({-(2**63)} to {2**63 - 1}), got {2**64 - 1}",
        ),
        (
            pa.array([Decimal(1), Decimal(10) ** 50], pa.decimal256(60, 0)),
            "evolve: add",
            f"c: expected decimal(38,0), got {10**50}",
        ),
        (
            pa.array([1, 300], pa.duration("us")),
            "schema: {c: byte}",
            "c: expected byte (-128 to 127), got 300",
        ),
    ],
)
def test_values_that_no_column_holds_refuse_their_rows_alone(
    tmp_path: Path, column: pa.Array, table: str, error: str
) -> None:
    landing = landed(tmp_path, file_of(column), table)

    (letter,) = landing.letters()
    assert letter["error"] == error
    assert landing.rows("id") == [0]
    assert landing.is_sound


def test_keys_of_maps_become_text_where_that_is_declared_and_stop_the_table_where_not(tmp_path: Path) -> None:
    column = pa.array([[(7, "a")]], pa.map_(pa.int64(), pa.string()))
    with pytest.raises(TableError, match="column c has a map with keys of type long") as error:
        landed(tmp_path, file_of(column))
    assert "`schema: {c: json}`" in str(error.value)

    declared = Landing(tmp_path, "format: parquet", "schema: {c: 'map<string, string>'}")
    declared.run()

    assert values(tmp_path) == [[("7", "a")]]


def test_what_arrow_cannot_read_says_so_and_how_to_go_on(tmp_path: Path) -> None:
    file = tmp_path / "in" / "a.parquet"
    file.parent.mkdir()
    pl.DataFrame({"id": [1], "big": pl.Series([1], dtype=pl.Int128)}).write_parquet(file)
    landing = Landing(tmp_path, "format: parquet", "schema: {id: long}")

    landing.run()

    (letter,) = landing.letters()
    assert letter["code"] == "bad_parquet"
    assert letter["error"].endswith(
        "something in the file is not read: Integers with more than 64 bits not implemented. "
        "Write it again with another type or codec"
    )


@pytest.mark.parametrize(
    ("names", "nested", "name"), [(["id", "id"], ["x", "y"], "id"), (["id", "c"], ["x", "x"], "s.x")]
)
def test_two_columns_of_one_name_refuse_the_file(
    tmp_path: Path, names: list[str], nested: list[str], name: str
) -> None:
    numbers = pa.array([1])
    inside = pa.StructArray.from_arrays([numbers, numbers], names=nested)
    out = io.BytesIO()
    pq.write_table(pa.table([numbers, numbers, inside], names=[*names, "s"]), out)

    landing = landed(tmp_path, out.getvalue(), "schema: {id: long}")

    (letter,) = landing.letters()
    assert letter["error"].endswith(f"there are two columns '{name}'. Write the file again with other names")
    assert landing.rows() == []


def test_what_pandas_writes(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "took": pd.to_timedelta(["1 days 00:00:01", None]),
            "kind": pd.Categorical(["a", None]),
            "at": pd.to_datetime(["2026-11-15 12:00:00.123456", None]),
            "zoned": pd.to_datetime(["2026-11-15 13:00:00.123456", None]).tz_localize(BERLIN),
            "count": pd.array([5, None], "Int64"),
            "part": [1.0, float("nan")],
            "when": [HALF_PAST, None],
        },
        index=pd.Index([10, 20], name="id"),
    )
    out = io.BytesIO()
    frame.to_parquet(out)

    landed(tmp_path, out.getvalue(), "schema: {part: long}")

    rows = pa.table(DeltaTable(tmp_path / "rows").to_pyarrow_table()).sort_by("id").to_pylist()
    assert rows[0] == {
        "id": 10,
        "took": 86_401_000_000,
        "kind": "a",
        "at": NOON,
        "zoned": NOON,
        "count": 5,
        "part": 1,
        "when": "10:30:00.5",
    }
    assert rows[1] == {**dict.fromkeys(rows[0]), "id": 20}


def test_what_polars_writes(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "id": [1],
            "took": [dt.timedelta(days=1, microseconds=5)],
            "when": [HALF_PAST],
            "kind": pl.Series(["a"], dtype=pl.Enum(["a", "b"])),
            "kinds": pl.Series([["a", "b"]], dtype=pl.List(pl.Categorical)),
            "pair": pl.Series([[1, 2]], dtype=pl.Array(pl.Int16, 2)),
            "price": pl.Series(["1.50"]).cast(pl.Decimal(20, 2)),
        }
    )
    out = io.BytesIO()
    frame.write_parquet(out)

    landed(tmp_path, out.getvalue())

    (row,) = pa.table(DeltaTable(tmp_path / "rows").to_pyarrow_table()).to_pylist()
    assert row == {
        "id": 1,
        "took": 86_400_000_005,
        "when": "10:30:00.5",
        "kind": "a",
        "kinds": ["a", "b"],
        "pair": [1, 2],
        "price": Decimal("1.50"),
    }


def test_what_duckdb_writes(tmp_path: Path) -> None:
    file = tmp_path / "in" / "a.parquet"
    file.parent.mkdir()
    duckdb.sql(
        f"COPY (SELECT 1 AS id, '{ONE}'::UUID AS u, ['{ONE}'::UUID] AS us, TIME '10:30:00.5' AS t, "
        "TIMESTAMP_NS '2026-11-15 12:00:00.123456' AS at, 18446744073709551615::UBIGINT AS big, "
        "INTERVAL '1 month 2 days' AS span, 'x'::ENUM('x') AS e, {'a': 1} AS s, '{\"a\":1}'::JSON AS j) "
        f"TO '{file}' (FORMAT parquet)"
    )
    landing = Landing(tmp_path, "format: parquet", "schema: {big: 'decimal(20,0)'}")

    landing.run()

    (row,) = pa.table(DeltaTable(tmp_path / "rows").to_pyarrow_table()).to_pylist()
    assert row == {
        "big": Decimal(2**64 - 1),
        "id": 1,
        "u": str(ONE),
        "us": [str(ONE)],
        "t": "10:30:00.5",
        "at": NOON,
        "span": b"\1\0\0\0\2\0\0\0\0\0\0\0",
        "e": "x",
        "s": {"a": 1},
        "j": '{"a":1}',
    }
