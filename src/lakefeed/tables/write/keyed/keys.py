"""Keys of rows as numbers, and the order of rows by some columns: exact, of any types, without a loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


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


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


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
    """The rows at these indexes, in their order."""
    return table.take(pa.array(indexes))


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
