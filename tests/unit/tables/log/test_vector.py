"""Deletion vectors: what is written is read again, by us and by others, and damage is noticed."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.errors import TableError
from lakefeed.stores import open_store
from lakefeed.tables.data_files import data_files, read_rows
from lakefeed.tables.log.roaring import NotABitmap, decode, encode
from lakefeed.tables.log.vector import _TO_Z85, DeletionVector, among, read_vector, union, write_vectors
from support.delta_tables import ids, open_any
from support.vectors import allow, mark_everywhere


@given(
    st.sets(st.integers(0, 300_000) | st.integers(0, 2**40), max_size=50),
    st.lists(st.tuples(st.integers(0, 500_000), st.integers(0, 20_000)), max_size=3),
)
def test_positions_are_read_as_they_were_written(single: set[int], spans: list[tuple[int, int]]) -> None:
    wanted = np.array(sorted(single | {n for at, many in spans for n in range(at, at + many)}), np.int64)

    assert decode(encode(wanted)).tolist() == wanted.tolist()


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_rows_are_added_to_those_that_are_deleted(before: set[int], more: set[int]) -> None:
    first, second = (np.array(sorted(some), np.int64) for some in (before, more))

    assert union(first, second).tolist() == sorted(before | more)
    assert among(second, first).tolist() == [row in before for row in sorted(more)]


def test_runs_are_read_which_other_writers_use() -> None:
    # One bitmap of 32 bits with one container: rows 10 to 14 and 20, by their first and how many follow.
    runs = bytes.fromhex("d1d33964 0100000000000000 00000000 3b300000 01 0000 0500 0200 0a000400 14000000")

    assert decode(runs).tolist() == [10, 11, 12, 13, 14, 20]


@pytest.mark.parametrize("data", [b"", b"abc", encode(np.arange(10))[:-3], b"\0" * 40])
def test_what_is_no_bitmap_is_refused(data: bytes) -> None:
    with pytest.raises(NotABitmap):
        decode(data)


def test_names_of_files_are_those_of_the_protocol() -> None:
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)

    assert vector.path == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def test_all_of_one_commit_share_a_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), {})
    small, large, other = np.array([3]), np.arange(0, 100_000, 7), np.arange(5, 9_000, 3)

    vectors = write_vectors(store, [small, large, other], durable=True)

    (file,) = tmp_path.iterdir()
    assert [vector.path for vector in vectors] == [file.name] * 3
    assert uuid.UUID(file.name.removeprefix("deletion_vector_").removesuffix(".bin")).version == 4
    for vector, wanted in zip(vectors, (small, large, other), strict=True):
        assert read_vector(store, vector).tolist() == wanted.tolist()
    absolute = DeletionVector("p", str(file), vectors[1].offset, vectors[1].size, vectors[1].cardinality)
    assert read_vector(store, absolute).tolist() == large.tolist()


def test_one_that_another_writer_has_put_into_the_log_is_read(tmp_path: Path) -> None:
    data = encode(np.array([3, 4, 7]))
    text = base64.b85encode(data + bytes(-len(data) % 4)).translate(_TO_Z85).decode()

    vector = DeletionVector("i", text, None, len(data), 3)

    assert vector.path is None
    assert read_vector(open_store(str(tmp_path), {}), vector).tolist() == [3, 4, 7]


def test_a_vector_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), {})
    (vector,) = write_vectors(store, [np.arange(0, 100_000, 7)])
    (file,) = tmp_path.iterdir()

    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    with pytest.raises(TableError, match=f"{file.name} cannot be read: its checksum is wrong"):
        read_vector(store, vector)
    file.unlink()
    with pytest.raises(TableError, match=f"{file.name} cannot be read: it is not there"):
        read_vector(store, vector)


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """Two files of ten rows with ids from 0 and 10, of which the second and third rows are deleted."""
    for start in (0, 10):
        write_deltalake(tmp_path, pa.table({"id": range(start, start + 10)}), mode="append")
    allow(tmp_path)
    mark_everywhere(tmp_path, [1])
    mark_everywhere(tmp_path, [2])
    return tmp_path


LEFT = [0, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16, 17, 18, 19]


def test_other_engines_do_not_see_rows_that_were_marked(marked: Path) -> None:
    assert ids(marked) == LEFT  # DuckDB
    assert pl.read_delta(str(marked))["id"].sort().to_list() == LEFT
    found = QueryBuilder().register("t", DeltaTable(marked)).execute("select id from t order by id")
    assert pa.table(found.read_all())["id"].to_pylist() == LEFT


@pytest.mark.parametrize("checkpointed", [False, True])
def test_files_tell_their_vectors_and_rows(checkpointed: bool, marked: Path) -> None:
    if checkpointed:
        DeltaTable(marked).create_checkpoint()
        for entry in (marked / "_delta_log").glob("*.json"):
            entry.unlink()
    table = open_any(marked)

    files = data_files(table)

    assert [(file.rows, file.deleted) for file in files] == [(8, 2), (8, 2)]
    assert sorted(n for batch in read_rows(table, files) for n in batch["id"].to_pylist()) == LEFT


def test_files_are_known_from_version_to_version(marked: Path) -> None:
    table = open_any(marked)
    data_files(table)
    mark_everywhere(marked, [5])
    table.refresh()

    assert [file.deleted for file in data_files(table)] == [3, 3]
