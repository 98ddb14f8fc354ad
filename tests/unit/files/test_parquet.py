from __future__ import annotations

import datetime as dt
import json
import pickle
import re
import time
import uuid
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from lakefeed.errors import StoreUnavailable, TableError
from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.stores import open_store

EVERY_TYPE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("byte", pa.int8()),
        ("short", pa.int16()),
        ("int", pa.int32()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("huge", pa.decimal128(38, 18)),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("attributes", pa.map_(pa.string(), pa.int64())),
        ("meta", pa.struct([("ip", pa.string()), ("depth", pa.struct([("n", pa.int32())]))])),
    ]
)
ROW = {
    "id": 1,
    "byte": -128,
    "short": 32_767,
    "int": -2_147_483_648,
    "float": 1.5,
    "double": -0.1,
    "flag": True,
    "text": "ü",
    "raw": b"\x00\xff",
    "day": dt.date(2026, 11, 15),
    "at": dt.datetime(2026, 11, 15, 10, 0, 0, 123_456, dt.UTC),
    "price": Decimal("-12345678.90"),
    "huge": Decimal("12345678901234567890.123456789012345678"),
    "tags": ["a", None],
    "attributes": [("k", 1)],
    "meta": {"ip": "::1", "depth": {"n": 7}},
}
NULLS: dict[str, object] = dict.fromkeys(EVERY_TYPE.names) | {"id": 2}


def numbers(start: int, end: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"id": np.arange(start, end), "text": [f"text {i % 10}" for i in range(start, end)]}
    )


def write(path: Path, target: FileTarget, *batches: pa.RecordBatch) -> list[WrittenFile]:
    writer = TableWriter(open_store(str(path), {}), target)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def commit(
    path: str, target: FileTarget, files: list[WrittenFile], storage: dict[str, str] | None = None
) -> DeltaTable:
    partitions = list(target.partition_columns)
    table = DeltaTable.create(
        path, Schema.from_arrow(target.schema), partition_by=partitions, storage_options=storage
    )
    adds = [AddAction(f.path, f.size, f.partition_values, 1, True, f.stats) for f in files]
    table.create_write_transaction(adds, "append", table.schema(), partition_by=partitions)
    return DeltaTable(path, storage_options=storage)


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    from duckdb_extensions import import_extension

    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("load delta; set timezone = 'UTC'")
    return connection


def test_many_small_batches_become_one_file_with_one_row_group(tmp_path: Path) -> None:
    batches = [numbers(start, start + 100) for start in range(0, 50_000, 100)]

    [file] = write(tmp_path, FileTarget(batches[0].schema), *batches)

    assert re.fullmatch(r"part-00000-[0-9a-f-]{36}\.parquet", file.path)
    assert file.rows == 50_000
    assert file.size == (tmp_path / file.path).stat().st_size
    assert pq.read_metadata(tmp_path / file.path).num_row_groups == 1
    assert pq.read_table(tmp_path / file.path)["id"].to_pylist() == list(range(50_000))


def test_no_rows_make_no_file_and_no_directory(tmp_path: Path) -> None:
    batch = numbers(0, 10)

    files = write(tmp_path / "table", FileTarget(batch.schema), batch.slice(0, 0))

    assert files == []
    assert not (tmp_path / "table").exists()


def test_row_groups_are_written_as_they_fill_so_that_memory_stays_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefeed.files.parquet._ROW_GROUP_BYTES", 100_000)
    batches = [numbers(start, start + 1_000) for start in range(0, 50_000, 1_000)]

    [file] = write(tmp_path, FileTarget(batches[0].schema), *batches)

    footer = pq.read_metadata(tmp_path / file.path)
    assert [footer.row_group(g).num_rows for g in range(footer.num_row_groups)] == [6_000] * 8 + [2_000]
    assert json.loads(file.stats)["maxValues"]["id"] == 49_999


def test_a_file_never_has_more_than_max_rows_per_file(tmp_path: Path) -> None:
    batches = [numbers(0, 700), numbers(700, 2_500)]

    files = write(tmp_path, FileTarget(batches[0].schema, max_rows_per_file=1_000), *batches)

    assert [file.rows for file in files] == [1_000, 1_000, 500]
    assert [json.loads(file.stats)["minValues"]["id"] for file in files] == [0, 1_000, 2_000]


def test_files_come_close_to_the_target_size(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    batches = [pa.record_batch({"x": random.random(50_000)}) for _ in range(20)]

    files = write(tmp_path, FileTarget(batches[0].schema, target_file_size=1_000_000), *batches)

    assert len(files) > 5
    assert all(900_000 < file.size < 1_200_000 for file in files[:-1])
    assert sum(file.rows for file in files) == 1_000_000


def test_a_small_batch_makes_one_file_for_each_partition_value(tmp_path: Path) -> None:
    rows = 5_000
    batch = pa.record_batch({"c": [f"v{i % 200}" for i in range(rows)], "id": list(range(rows))})

    files = write(tmp_path, FileTarget(batch.schema, ("c",)), batch.slice(0, 2_000), batch.slice(2_000))

    assert len(files) == len({file.path.split("/")[0] for file in files}) == 200
    assert {file.rows for file in files} == {25}
    assert files[7].partition_values == {"c": "v7"}
    assert pq.read_schema(tmp_path / files[7].path).names == ["id"]
    assert list(json.loads(files[7].stats)["nullCount"]) == ["id"]


def test_open_files_stay_few_and_no_row_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefeed.files.parquet._GATHERED_BYTES", 1)
    monkeypatch.setattr("lakefeed.files.parquet._OPEN_FILES", 2)
    batches = [pa.record_batch({"c": ["a", "b", "c"], "id": [n, n + 1, n + 2]}) for n in (0, 3)]

    files = write(tmp_path, FileTarget(batches[0].schema, ("c",)), *batches)

    assert sum(file.rows for file in files) == 6
    ids = [pq.ParquetFile(tmp_path / file.path).read()["id"].to_pylist() for file in files]
    assert sorted(value for found in ids for value in found) == [0, 1, 2, 3, 4, 5]


def test_abort_deletes_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefeed.files.parquet._ROW_GROUP_BYTES", 1)
    target = FileTarget(numbers(0, 1).schema, max_rows_per_file=100)
    writer = TableWriter(open_store(str(tmp_path), {}), target)
    writer.write(numbers(0, 250))
    written = list(tmp_path.iterdir())

    writer.abort()

    assert len(written) == 3
    assert list(tmp_path.iterdir()) == []
    assert writer.close() == []


def test_abort_raises_nothing_even_when_files_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefeed.files.parquet._ROW_GROUP_BYTES", 1)
    writer = TableWriter(open_store(str(tmp_path), {}), FileTarget(numbers(0, 1).schema))
    writer.write(numbers(0, 10))
    for file in tmp_path.iterdir():
        file.unlink()

    writer.abort()


def test_a_full_disk_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = pa.OSFile("/dev/full", "w")
    monkeypatch.setattr("lakefeed.files.parquet._create", lambda store, path, grown: full)

    with pytest.raises(StoreUnavailable) as told:
        write(tmp_path, FileTarget(numbers(0, 1).schema), numbers(0, 1_000))

    assert str(told.value) == f"{tmp_path}: no space left\nFree some space; the write is tried again."


def test_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(TableError, match="a part of this path is a file, not a directory"):
        write(tmp_path / "file" / "table", FileTarget(numbers(0, 1).schema), numbers(0, 1))


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_compression_is_the_one_that_was_asked_for(tmp_path: Path, compression: str) -> None:
    [file] = write(tmp_path, FileTarget(numbers(0, 1).schema, compression=compression), numbers(0, 1_000))

    column = pq.read_metadata(tmp_path / file.path).row_group(0).column(0)
    assert column.compression == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_a_dictionary_is_used_where_values_repeat(tmp_path: Path) -> None:
    [file] = write(tmp_path, FileTarget(numbers(0, 1).schema), numbers(0, 10_000))

    group = pq.read_metadata(tmp_path / file.path).row_group(0)
    assert "RLE_DICTIONARY" not in group.column(0).encodings
    assert "DELTA_BINARY_PACKED" in group.column(0).encodings
    assert "RLE_DICTIONARY" in group.column(1).encodings


def test_a_target_travels_to_workers() -> None:
    target = FileTarget(EVERY_TYPE, ("day",), properties={"delta.dataSkippingNumIndexedCols": "3"})

    assert pickle.loads(pickle.dumps(target)) == target


def test_every_type_is_read_back_alike_by_three_readers(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    target = FileTarget(EVERY_TYPE)
    rows = pa.RecordBatch.from_pylist([ROW, NULLS], schema=EVERY_TYPE)

    table = commit(str(tmp_path), target, write(tmp_path, target, rows))

    assert table.to_pyarrow_table().cast(EVERY_TYPE).to_pylist() == rows.to_pylist()
    dropped = ["attributes"]  # Polars has no maps.
    polars_rows = polars.read_delta(str(tmp_path), columns=[n for n in EVERY_TYPE.names if n not in dropped])
    expected = rows.drop_columns(dropped).to_pylist()
    expected[1]["meta"] = polars_rows["meta"][1]
    assert polars_rows.to_dicts() == expected
    duck_rows = duck.sql(f"select * from delta_scan('{tmp_path}') order by id").to_arrow_table()
    assert duck_rows.drop_columns(["at"]).cast(
        EVERY_TYPE.remove(EVERY_TYPE.get_field_index("at"))
    ).to_pylist() == (rows.drop_columns(["at"]).to_pylist())
    assert duck_rows["at"].cast(pa.timestamp("us", "UTC")).to_pylist() == rows.column("at").to_pylist()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            pa.string(),
            ["a b", "x%y", "u/v", "ü", "=", "a\nb", "q'uote", "#?&", "\x01", "..", None, "a" * 200],
        ),
        (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), ROW["at"], None]),
        (pa.date32(), [dt.date(2026, 1, 1), dt.date(99, 1, 1), None]),
        (pa.decimal128(10, 2), [Decimal("0.10"), Decimal("-5.00"), None]),
        (pa.bool_(), [True, False, None]),
        (pa.int16(), [1, -1, None]),
    ],
)
def test_partition_values_are_read_back_alike_by_three_readers(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection, kind: pa.DataType, values: list[object]
) -> None:
    batch = pa.record_batch({"c": pa.array(values, kind), "id": list(range(len(values)))})
    target = FileTarget(batch.schema, ("c",))

    table = commit(str(tmp_path), target, write(tmp_path, target, batch))

    assert table.to_pyarrow_table().sort_by("id")["c"].cast(kind).to_pylist() == values
    assert polars.read_delta(str(tmp_path)).sort("id")["c"].to_list() == values
    duck_rows = duck.sql(f"select c from delta_scan('{tmp_path}') order by id").to_arrow_table()
    assert duck_rows["c"].cast(kind).to_pylist() == values


def test_a_partition_value_too_long_for_a_directory_stays_whole_in_the_log(tmp_path: Path) -> None:
    values = ["ü" * 300, "ü" * 299 + "x"]
    batch = pa.record_batch({"c": values, "id": [0, 1]})
    target = FileTarget(batch.schema, ("c",))

    table = commit(str(tmp_path), target, write(tmp_path, target, batch))

    assert table.to_pyarrow_table().sort_by("id")["c"].to_pylist() == values


def test_rows_of_each_file_are_sorted_with_nulls_last(tmp_path: Path) -> None:
    batch = pa.record_batch(
        {"c": ["x", "y", "x", "y", "x"], "user": [3, None, 1, 2, 3], "at": [1, 2, 3, 4, 0], "id": [*range(5)]}
    )
    target = FileTarget(batch.schema, ("c",), sort_by=("user", "at"))

    files = write(tmp_path, target, batch.slice(0, 2), batch.slice(2))

    found = {file.partition_values["c"]: pq.ParquetFile(tmp_path / file.path).read() for file in files}
    assert {value: rows["id"].to_pylist() for value, rows in found.items()} == {"x": [2, 4, 0], "y": [3, 1]}


def test_a_file_is_sorted_as_a_whole_however_many_rows_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefeed.files.parquet._GATHERED_BYTES", 100_000)
    shuffled = np.random.default_rng(0).permutation(50_000)
    batches = [pa.record_batch({"id": part}) for part in np.split(shuffled, 50)]

    files = write(tmp_path, FileTarget(batches[0].schema, sort_by=("id",)), *batches)

    rows = [pq.read_table(tmp_path / file.path)["id"].to_pylist() for file in files]
    assert len(files) == 4
    assert all(ids == sorted(ids) for ids in rows)
    assert sorted(value for ids in rows for value in ids) == list(range(50_000))


@pytest.mark.parametrize(("sort_by", "skipped"), [((), 0), (("user",), 9)])
def test_sorted_rows_let_a_filter_skip_files(tmp_path: Path, sort_by: tuple[str, ...], skipped: int) -> None:
    users = np.random.default_rng(0).integers(0, 1_000, 10_000)
    batch = pa.record_batch({"user": users, "id": np.arange(10_000)})
    target = FileTarget(batch.schema, max_rows_per_file=1_000, sort_by=sort_by)

    table = commit(str(tmp_path), target, write(tmp_path, target, batch))

    wanted = table.file_uris(file_pruning_predicate="user = 450")
    assert len(table.file_uris()) - len(wanted) == skipped


def test_sorting_keeps_columns_of_every_type(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pylist([NULLS, ROW], schema=EVERY_TYPE)

    [file] = write(tmp_path, FileTarget(EVERY_TYPE, sort_by=("price", "at", "text", "flag", "raw")), rows)

    assert pq.read_table(tmp_path / file.path)["id"].to_pylist() == [1, 2]


def test_names_of_uuid7_sort_by_time(tmp_path: Path) -> None:
    target = FileTarget(numbers(0, 1).schema, prefix="clicks", naming="uuid7")
    names = []
    for _ in range(3):
        names += [file.path for file in write(tmp_path, target, numbers(0, 1))]
        time.sleep(0.002)

    assert names == sorted(names)
    assert {(name[:13], uuid.UUID(name[13:-8]).version) for name in names} == {("clicks-00000-", 7)}
