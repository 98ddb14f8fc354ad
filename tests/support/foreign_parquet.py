"""Parquet files as others write them: columns that every reader of Delta has, and columns that some lack."""

from __future__ import annotations

import base64
import datetime as dt
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MOMENT = dt.datetime(2026, 11, 15, 10, 30, 0, 123_000)
ZONED = MOMENT.replace(tzinfo=dt.UTC)

# One row, id 1 and a [1, 2], by Spark with spark.sql.parquet.writeLegacyFormat.
OLD_LIST = (
    "eNqFU92K01AQnpzNliBeKOw55EAuSqChhRia/sUtpeDNIrLIItIbETlJT2vcNO0mqctSCj6AF/5deulD6Bv4DL6Ar+Hkp92Cgjkhmflm"
    "5pv5JuTi0TOXAr2H5+O7H7/vGJSgq1ENQIHyQr+J5/v7z5+IQVV0a7QGQDB0RIrnUZ6aW/w+4bq2KzwwKeGsCqtKEVLJDuYWsnCDaXTM"
    "8pDBzuiEldHzx3fTlUguX6XBa7kQVAWqNkAn4RT6oCsCp62dj4rchqofiyQRN8AIN7htAQ7LG6DxPJ0iysZsbGmj26luLQbNf6A4C83l"
    "E8AW7AOhJ+yrQseQUxOkrvGmIsqmyK+yCZtYZ6NSWqkTeQ+8A75WLhrYt5zzl0IHwL4ojFgavk4wz9b1ZTJ3xEqgbqdYgfNWJmm4jPXj"
    "ntNx2qC3/spIryIHjau1zJxkee0sZCamIhP6T2VjZjcraQ7NNEvWQWba5iyU0TQ1hy82ZiwWeSicIlylRct4jl68jiLhR4jMRJRK29xR"
    "msPNdmvvS8W+ct+oWAvCMpILGWfPSzSMMzmXCeLBMs5EGKdPsUVFv/1fw5db0J9UCh8sknq1krrruJ7Trjf9dRhN6zMRtAOvN+h3O9Lt"
    "dn3pn3YeCm82EJ7se37fbfs9zxNui9sGAN7wBr/FBf4JfwAReaDR"
)


def _numbered(field: pa.Field, number: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(number)})


TAKEN: dict[str, tuple[pa.Array, Any, dict[str, Any]]] = {
    "u8": (pa.array([255], pa.uint8()), 255, {}),
    "u16": (pa.array([65_535], pa.uint16()), 65_535, {}),
    "u32": (pa.array([2**32 - 1], pa.uint32()), 2**32 - 1, {}),
    "ms": (pa.array([ZONED], pa.timestamp("ms", "UTC")), ZONED, {}),
    "us": (pa.array([ZONED], pa.timestamp("us", "UTC")), ZONED, {}),
    "int96": (
        pa.array([ZONED], pa.timestamp("us", "UTC")),
        ZONED,
        {"use_deprecated_int96_timestamps": True},
    ),
    "zoneless": (pa.array([MOMENT], pa.timestamp("us")), MOMENT, {}),
    "fixed": (pa.array([b"1234"], pa.binary(4)), b"1234", {}),
    "word": (pa.array(["x"]).dictionary_encode(), "x", {}),
    "large": (pa.array(["x"], pa.large_string()), "x", {}),
    "item": (pa.array([[1, None]]), [1, None], {"use_compliant_nested_type": False}),
    "nested": (pa.array([{"a": [{"b": 1}]}]), {"a": [{"b": 1}]}, {}),
    "money": (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), Decimal("1.50"), {}),
    "day": (pa.array([dt.date(2026, 11, 15)]), dt.date(2026, 11, 15), {}),
}
"""By name: a column of one row, the value that every reader must see, and options of the writer."""

REFUSED: dict[str, tuple[pa.Table, str]] = {
    "ids": (
        pa.table({"id": [1]}, schema=pa.schema([_numbered(pa.field("id", pa.int64()), 1)])),
        "column id has a Parquet field id, as Iceberg writes them; DuckDB reads null in its place",
    ),
    "inner ids": (
        pa.table(
            {"id": [1], "n": [{"a": 2}]},
            schema=pa.schema(
                [("id", pa.int64()), ("n", pa.struct([_numbered(pa.field("a", pa.int64()), 3)]))]
            ),
        ),
        "column n.a has a Parquet field id",
    ),
    "u64": (
        pa.table({"id": pa.array([1], pa.uint64())}),
        "column id is uint64: Delta does not have this type",
    ),
    "void": (pa.table({"id": [1], "n": pa.nulls(1)}), "column n has no value in any row"),
    "void inside": (pa.table({"id": [1], "l": [[None]]}), "column l.element has no value in any row"),
    "time": (pa.table({"id": [dt.time(1)]}), "column id is time64[us], which not every reader"),
    "float16": (pa.table({"id": pa.array([1.0], pa.float16())}), "column id is a float of 16 bits"),
    "decimal256": (
        pa.table({"id": pa.array([Decimal(1)], pa.decimal256(50, 2))}),
        "column id is decimal256(50, 2), which not every reader",
    ),
    "duration": (pa.table({"id": [dt.timedelta(1)]}), "column id is duration[us], which not every reader"),
    "ns": (
        pa.table({"id": pa.array([1], pa.timestamp("ns"))}),
        "column id is timestamp[ns], which not every reader",
    ),
    "fixed list": (
        pa.table({"id": [1], "l": pa.array([[1, 2]], pa.list_(pa.int64(), 2))}),
        "column l is fixed_size_list<element: int64>[2], which not every reader",
    ),
    "case": (
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "A"]),
        "column A differs from a only in case, and readers take both for one",
    ),
    "name": (pa.table({"a b": [1]}), "column a b has a name that a Delta table cannot hold"),
}
"""By name: a file, and what is said about it."""


def write_taken(folder: Path) -> dict[str, dict[str, Any]]:
    """A directory for each way of writing; the row that each must have, by directory."""
    ways: dict[str, dict[str, Any]] = {}
    for name, (_, _, options) in TAKEN.items():
        ways.setdefault("-".join(options) or "plain", {})[name] = options
    for way, names in ways.items():
        (folder / way).mkdir(parents=True)
        table = pa.Table.from_arrays([pa.array([1]), *(TAKEN[name][0] for name in names)], ["id", *names])
        pq.write_table(table, folder / way / "part 1%.parquet", **next(iter(names.values())))
    return {way: {name: TAKEN[name][1] for name in names} for way, names in ways.items()}


def write_old_list(file: Path) -> None:
    file.write_bytes(zlib.decompress(base64.b64decode(OLD_LIST)))
