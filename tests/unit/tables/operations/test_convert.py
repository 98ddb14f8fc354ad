"""A directory of Parquet files becomes a table that all read alike, or the file is named that cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed.errors import TableError, UsageError
from lakefeed.stores import open_store
from lakefeed.tables.operations import convert as conversion
from lakefeed.tables.operations.operation import operation_info
from support.delta_tables import rows
from support.foreign_parquet import REFUSED, write_old_list, write_taken

INFO = operation_info("convert", by="test")


def convert(path: Path, **types: pa.DataType) -> DeltaTable:
    plan = conversion.plan(str(path), open_store(str(path), {}), types)
    return conversion.run(plan, {}, INFO)


def statistics(path: Path) -> dict[str, Any]:
    entry = (path / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    told: dict[str, Any] = next(
        json.loads(action["add"]["stats"]) for line in entry if "add" in (action := json.loads(line))
    )
    return told


def test_columns_that_every_reader_has_are_read_alike(tmp_path: Path) -> None:
    for folder, expected in write_taken(tmp_path).items():
        path = tmp_path / folder

        convert(path)

        whole = [{"id": 1, **expected}]
        assert DeltaTable(path).to_pyarrow_table().to_pylist() == whole
        assert pl.read_delta(str(path)).to_dicts() == whole
        [row] = rows(path)
        assert [f"('{name}', None)" in row for name in expected] == [False] * len(expected)


@pytest.mark.parametrize("name", REFUSED)
def test_a_column_that_not_every_reader_has_is_named_with_its_file(name: str, tmp_path: Path) -> None:
    table, told = REFUSED[name]
    pq.write_table(table, tmp_path / "b.parquet")

    with pytest.raises(TableError) as refused:
        convert(tmp_path)

    assert str(refused.value).startswith(f"{tmp_path}: b.parquet: {told}")
    remedy = "with microseconds" if "[ns]" in told else "without it"
    assert str(refused.value).endswith(f".\nWrite the file again {remedy}, then convert.")
    assert not (tmp_path / "_delta_log").exists()


def test_lists_in_the_old_form_are_refused(tmp_path: Path) -> None:
    write_old_list(tmp_path / "old.parquet")

    with pytest.raises(TableError, match=r"old\.parquet: column a is a list in Parquet's old form"):
        convert(tmp_path)


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4"])
def test_codecs_that_every_reader_has_are_read_alike(codec: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": list(range(1000))}), tmp_path / "a.parquet", compression=codec)

    convert(tmp_path)

    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == 1000
    assert pl.read_delta(str(tmp_path)).height == 1000
    assert len(rows(tmp_path)) == 1000


def test_codecs_that_spark_lacks_are_refused_in_any_row_group(tmp_path: Path) -> None:
    table = pa.table({"id": list(range(1000)), "n": list(range(1000))})
    file = tmp_path / "a.parquet"
    pq.write_table(table, file, compression={"id": "zstd", "n": "brotli"})
    with pytest.raises(TableError, match=r"a\.parquet: column n is compressed with BROTLI") as refused:
        convert(tmp_path)
    assert str(refused.value).endswith("Write the file again with snappy or zstd, then convert.")
    pq.write_table(table, file, compression="lz4", row_group_size=500)
    # The codec of the last column chunk becomes Hadoop's LZ4, 5 in place of 7.
    footer = bytearray(file.read_bytes())
    footer[footer.rindex(b"\x15\x0e\x16") + 1] = 0x0A
    file.write_bytes(footer)

    with pytest.raises(TableError, match="column n is compressed with Hadoop's LZ4"):
        convert(tmp_path)

    assert not (tmp_path / "_delta_log").exists()


def test_geometries_are_refused(tmp_path: Path) -> None:
    shape = "SELECT 1 AS id, {'at': 'POINT(1 2)'::GEOMETRY} AS place"
    duckdb.sql(f"COPY ({shape}) TO '{tmp_path}/a.parquet' (FORMAT parquet, GEOPARQUET_VERSION 'V2')")

    with pytest.raises(TableError, match=r"column place\.at has Parquet's type GEOMETRY"):
        convert(tmp_path)


def test_a_broken_dictionary_of_a_later_row_group_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    words = [f"word {number % 10}" for number in range(2000)]
    pq.write_table(pa.table({"word": words}), file, row_group_size=1000, compression="none")
    chunk = pq.ParquetFile(file).metadata.row_group(1).column(0)
    content = bytearray(file.read_bytes())
    # The text of the dictionary begins with the length of its first word.
    at = content.index(b"word 0", chunk.dictionary_page_offset) - 4
    content[at : at + 4] = b"\xff\xff\xff\x7f"
    file.write_bytes(content)

    with pytest.raises(TableError, match=r"a\.parquet: it cannot be read: "):
        convert(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "page"])
def test_a_damaged_file_is_named(damage: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": list(range(100))}), tmp_path / "a.parquet")
    torn = tmp_path / "b.parquet"
    pq.write_table(pa.table({"id": list(range(1000))}), torn)
    whole = torn.read_bytes()
    content = {"cut": whole[:-20], "empty": b"", "text": b"id,name\n", "page": whole[:4] + b"\xff" * 60}[
        damage
    ]
    torn.write_bytes(content if damage != "page" else content + whole[64:])

    with pytest.raises(TableError, match=r"b\.parquet: it cannot be read: "):
        convert(tmp_path)

    assert not (tmp_path / "_delta_log").exists()


def test_names_that_differ_in_case_between_files_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"ID": [1]}), tmp_path / "b.parquet")

    with pytest.raises(
        TableError, match=r"b\.parquet: column ID differs from id of other files only in case"
    ):
        convert(tmp_path)


def test_directories_in_any_spelling_become_the_values_that_they_stand_for(tmp_path: Path) -> None:
    names = {
        "at=2026-11-15T10%3A30%3A00": 1,
        "at=2026-11-15 11:30:00.5": 2,
        "at=__HIVE_DEFAULT_PARTITION__": 3,
    }
    for name, number in names.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"id": [number]}), tmp_path / name / "ü 1.parquet")

    convert(tmp_path, at=pa.timestamp("us", "UTC"))

    read = DeltaTable(tmp_path).to_pyarrow_table().sort_by("id").to_pylist()
    assert [str(row["at"]) for row in read] == [
        "2026-11-15 10:30:00+00:00",
        "2026-11-15 11:30:00.500000+00:00",
        "None",
    ]


def test_a_directory_that_is_no_value_of_its_type_is_named(tmp_path: Path) -> None:
    (tmp_path / "day=soon").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "day=soon" / "a.parquet")

    with pytest.raises(UsageError, match=r"day=soon/a\.parquet: 'soon' is no date\.\nGive day another type"):
        convert(tmp_path, day=pa.date32())


def test_statistics_come_from_the_footers_as_far_as_they_can_be_relied_on(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [3, 1, None], "f": [1.0, float("nan"), 2.0], "t": ["b", "a", "c"]}),
                   tmp_path / "a.parquet")  # fmt: skip

    convert(tmp_path)

    assert statistics(tmp_path) == {
        "numRecords": 3,
        "minValues": {"id": 1, "t": "a"},
        "maxValues": {"id": 3, "t": "c"},
        "nullCount": {"id": 1, "t": 0},
    }
