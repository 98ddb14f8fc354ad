"""Rows by their indexes, of columns that are larger than one array of Arrow can be."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from lakefeed.tables.write.keyed import keys
from lakefeed.tables.write.keyed.keys import in_one_piece, taken, values_at

PLAIN = pa.schema([("id", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))])


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    texts = [None if at % 7 == 0 else "x" * (at % 11) for at in numbers]
    return pa.table([numbers, texts, [[text, "y"] for text in texts]], schema=PLAIN)


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_large_columns_are_taken_piece_by_piece(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    table = pa.concat_tables([rows(10 * at, chance.randrange(10)) for at in range(5)])
    count = table.num_rows
    indexes = np.array([chance.randrange(count) for _ in range(chance.randrange(3 * count))], np.int64)
    missing = np.array([chance.random() < 0.3 for _ in indexes], np.bool_)
    expected = table.take(pa.array(indexes)), table.take(pa.array(indexes, mask=missing))
    size = chance.choice([1, 60, 400])
    monkeypatch.setattr(keys, "_LARGEST_COLUMN", size)
    monkeypatch.setattr(keys, "_JOINED_COLUMN", size)

    found = taken(table, indexes)
    with_nulls = [values_at(column, indexes, missing) for column in table.columns]

    assert found.equals(expected[0])
    assert pa.Table.from_arrays(with_nulls, schema=PLAIN).equals(expected[1])
    if size == 1 and len(indexes) > 20:
        assert found.column("text").num_chunks > 10


def test_a_piece_that_arrow_cannot_make_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    column = pa.chunked_array([[b"a" * 100] * 10, [b"b"] * 1000])
    real, asked = pa.concat_arrays, []

    def limited(parts: list[pa.Array]) -> pa.Array:
        asked.append(sum(part.nbytes for part in parts))
        if asked[-1] > 500:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return real(parts)

    monkeypatch.setattr(keys, "_JOINED_COLUMN", 1000)
    monkeypatch.setattr(keys.pa, "concat_arrays", limited)

    found = values_at(column, np.arange(len(column))[::-1])

    assert found.to_pylist() == column.to_pylist()[::-1]
    assert max(asked) > 500


def test_a_table_in_one_piece_has_the_same_rows() -> None:
    table = pa.concat_tables([rows(0, 3), rows(3, 4), rows(7, 0)])

    found = in_one_piece(table)

    assert found.equals(table)
    assert [column.num_chunks for column in found.columns] == [1, 1, 1]
    assert in_one_piece(table.slice(0, 0)).num_rows == 0
