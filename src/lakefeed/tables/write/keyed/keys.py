"""Keys of rows as numbers, and the order of rows by some columns: exact, of any types, without a loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.staged import OFFSET, ORDINAL, PARTITION

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


_LARGEST_COLUMN = 2**30
"""Bytes of a column that are taken in one piece: one array of Arrow holds less than 2 GiB of text."""
_JOINED_COLUMN = 2**26
"""The same of a column in several pieces, which Arrow puts together first."""


class KeyIndex:
    """The distinct keys of some rows, numbered from 0. A key with a null in it has no number: -1."""

    def __init__(self, rows: pa.Table | pa.RecordBatch, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._values: list[pa.Array] = []
        self._pairs: list[Numbers] = []
        numbers: Numbers | None = None
        for name in names:
            encoded = one_array(rows.column(name)).dictionary_encode()
            self._values.append(encoded.dictionary)
            codes = _codes(encoded.indices)
            if numbers is None:
                numbers = codes
                continue
            pairs = _paired(numbers, codes, len(encoded.dictionary))
            known = np.unique(pairs[pairs >= 0])
            self._pairs.append(known)
            numbers = _looked_up(known, pairs)
        assert numbers is not None, "a key has at least one column"
        self.numbers: Numbers = numbers
        """The number of the key of each row."""

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._pairs[-1]) if self._pairs else len(self._values[0])

    def find(self, rows: pa.Table | pa.RecordBatch) -> Numbers:
        """The number of the key of each of these rows; -1 where it is none of the keys."""
        numbers: Numbers | None = None
        for at, (name, values) in enumerate(zip(self._names, self._values, strict=True)):
            found = pc.index_in(one_array(rows.column(name)), value_set=values, skip_nulls=True)
            codes = _codes(found)
            if numbers is None:
                numbers = codes
            else:
                numbers = _looked_up(self._pairs[at - 1], _paired(numbers, codes, len(values)))
        assert numbers is not None
        return numbers


def ranks(*tables: pa.Table | pa.RecordBatch) -> list[Numbers]:
    """The rank of each row among the rows of all tables, by all columns in their order; nulls come first.

    Rows with the same values have the same rank. Tables without columns have one rank.
    """
    sizes = [table.num_rows for table in tables]
    total = np.zeros(sum(sizes), np.int64)
    for at in range(tables[0].num_columns):
        column = pa.concat_arrays([one_array(table.column(at)) for table in tables])
        ranked = pc.rank(column, sort_keys=[("", "ascending", "at_start")], tiebreaker="dense")
        own = ranked.to_numpy(zero_copy_only=False).astype(np.int64) - 1
        if at == 0:
            total = own
            continue
        # Numbered afresh after each column, so that the product of many cannot overflow.
        total = np.unique(total * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1].astype(
            np.int64
        )
    return np.split(total, np.cumsum(sizes)[:-1])


def by_position(changes: pa.Table) -> Numbers:
    """The rank of each staged change by where it came from.

    Positions of several partitions have no order. Their names descend, so that rows of a snapshot, whose
    partition has a longer name, come before the changes of their table.
    """
    (partition,), (position,) = (ranks(changes.select(names)) for names in ([PARTITION], [OFFSET, ORDINAL]))
    ranked: Numbers = (partition.max(initial=0) - partition) * (len(position) + 1) + position
    return ranked


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def in_one_piece(rows: pa.Table) -> pa.Table:
    """The same rows; column by column, so that not all of them are in memory twice.

    A column of more than 2 GiB of text stays in several pieces.
    """
    schema, columns = rows.schema, []
    for name in schema.names:
        columns.append(rows.select([name]).combine_chunks().column(0))
        rows = rows.drop_columns([name])
    return pa.Table.from_arrays(columns, schema=schema)


def equal(one: pa.Array | pa.ChunkedArray, other: pa.Array | pa.ChunkedArray) -> Mask:
    """Where two columns have the same value; null is one, and so is that which is not a number."""
    if pa.types.is_nested(one.type):
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        # As text, so that what is not a number is the same as itself.
        return np.array([mine == theirs or repr(mine) == repr(theirs) for mine, theirs in pairs], np.bool_)
    same = pc.fill_null(pc.equal(one, other), False)
    both = pc.and_(pc.is_null(one, nan_is_null=True), pc.is_null(other, nan_is_null=True))
    if pa.types.is_floating(one.type):
        both = pc.and_(both, pc.equal(one.is_null(), other.is_null()))
    result: Mask = one_array(pc.or_(same, both)).to_numpy(zero_copy_only=False)
    return result


def joined(parts: Iterable[Numbers]) -> Numbers:
    """All of them, one behind the other."""
    return np.concatenate([np.zeros(0, np.int64), *parts])


def taken(table: pa.Table, indexes: npt.NDArray[Any]) -> pa.Table:
    """The rows at these indexes, in their order; the table itself where these are all of them."""
    if len(indexes) == table.num_rows and np.array_equal(indexes, np.arange(len(indexes))):
        return table
    if table.nbytes <= _JOINED_COLUMN:
        return table.take(pa.array(indexes))
    columns = [values_at(column, indexes) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def values_at(column: pa.ChunkedArray, indexes: Numbers, missing: Mask | None = None) -> pa.ChunkedArray:
    """The values at these indexes, and nulls for those that are missing.

    A column may have more text than one array of Arrow: then the result has several chunks.
    """
    size = column.nbytes * max(1.0, len(indexes) / max(1, len(column)))
    if size <= (_LARGEST_COLUMN if column.num_chunks == 1 else _JOINED_COLUMN):
        return column.take(pa.array(indexes, mask=missing))
    pieces: list[pa.Array] = []
    for own in np.array_split(np.arange(len(indexes)), -int(-size // _JOINED_COLUMN)):
        pieces += _pieces_at(column, indexes[own], None if missing is None else missing[own])
    return pa.chunked_array(pieces, column.type)


def _pieces_at(column: pa.ChunkedArray, indexes: Numbers, missing: Mask | None) -> list[pa.Array]:
    """The values in one piece or, where some of them are much larger than others, in several."""
    sizes = [len(chunk) for chunk in column.chunks]
    starts = np.cumsum([0, *sizes])
    numbers = np.searchsorted(starts[1:], indexes, side="right")
    order = np.argsort(numbers, kind="stable")
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    try:
        parts = [
            column.chunk(int(number)).take(
                pa.array(indexes[order[numbers[order] == number]] - starts[number])
            )
            for number in np.unique(numbers)
        ]
        return [pa.concat_arrays(parts).take(pa.array(back, mask=missing))] if parts else []
    except pa.ArrowInvalid:
        half = len(indexes) // 2
        if not half:
            raise
    found = []
    for own in (slice(0, half), slice(half, None)):
        found += _pieces_at(column, indexes[own], None if missing is None else missing[own])
    return found


def _codes(indices: pa.Array) -> Numbers:
    return indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _paired(first: Numbers, second: Numbers, width: int) -> Numbers:
    return np.where((first < 0) | (second < 0), -1, first * width + second)


def _looked_up(known: Numbers, values: Numbers) -> Numbers:
    """The index of each value among the known ones, which are sorted; -1 for others."""
    if not len(known):
        return np.full(len(values), -1, np.int64)
    indexes = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.where(known[indexes] == values, indexes, -1)
