"""Partitions of a table: rows are split by them, and each has a directory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.partition_values import LONGEST_NAME, directory_name, shortest_name, value_text
from lakefeed.errors import TableError
from lakefeed.events import Refused

Values = tuple[str | None, ...]
"""The value of each partition column, in their order, as the log has it."""

Codes = npt.NDArray[np.integer[Any]]
"""For each row, which of some distinct values it has."""

_EMPTY = "expected string not null, got the empty text, which is null in a partition column"
_LONG = (
    f"expected a text that fits the name of a directory, {LONGEST_NAME} bytes with that of the column and "
    "with special characters as %XX"
)


def split_by_partition(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Values, pa.Table]]:
    """The rows of each combination of values, in the order that they had, without the partition columns.

    Rows are copied once, and not at all when they share one combination.
    """
    rest = table.drop_columns(list(columns))
    if not columns or not table.num_rows:
        yield (), rest
        return
    values, codes = combinations(table, columns)
    if len(values) == 1:
        yield values[0], rest
        return
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(values) + 1))
    ordered = rest.combine_chunks().take(pa.array(order))
    for which, (start, end) in enumerate(pairwise(edges.tolist())):
        yield values[which], ordered.slice(start, end - start)


def directory(columns: Sequence[str], values: Values) -> str:
    """The directory of a partition, ending in a slash; empty without partition columns.

    Directories are for people and for readers that take values from them; the log has the values.
    """
    return "".join(_directory_name(name, value) + "/" for name, value in zip(columns, values, strict=True))


def without_partition(rows: pa.RecordBatch, schema: pa.Schema, columns: Iterable[str]) -> dict[int, Refused]:
    """The rows that no partition can hold, by their index, and why.

    Delta has one word for the empty text and for null, so a column that is `not null` has no empty texts. A
    text that is longer than the name of a directory would not be read alike by all.
    """
    found: dict[int, Refused] = {}
    for name in columns:
        if not pa.types.is_string(rows.schema.field(name).type):
            continue
        values = rows.column(name)
        sizes = np.asarray(pc.binary_length(values).to_numpy(zero_copy_only=False))
        if name in schema.names and not schema.field(name).nullable:
            for at in np.flatnonzero(sizes == 0).tolist():
                found[at] = Refused(at, "schema", "missing_value", f"{name}: {_EMPTY}")
        # A byte takes three in a name at most.
        if np.nanmax(sizes, initial=0) > LONGEST_NAME // 3 - len(name.encode()) - 1:
            for at, size in _too_long(name, values):
                found[at] = Refused(at, "write", "bad_partition", f"{name}: {_LONG}, got {size:,} bytes")
    return found


def _too_long(name: str, values: pa.Array) -> list[tuple[int, int]]:
    """The indexes of texts whose directory would have too long a name, each with the bytes of the name."""
    encoded = values.dictionary_encode()
    names = [shortest_name(name, value) for value in encoded.dictionary.to_pylist()]
    sizes = np.asarray([*(len(one.encode()) for one in names), 0])
    sizes = sizes[encoded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)]
    long = np.flatnonzero(sizes > LONGEST_NAME)
    return list(zip(long.tolist(), sizes[long].tolist(), strict=True))


def _directory_name(column: str, value: str | None) -> str:
    name = directory_name(column, value)
    # Without `=`: a reader that takes values from directories must not take this one for a value.
    return name or hashlib.sha256(f"{column}={value}".encode()).hexdigest()[:32]


def combinations(table: pa.Table, columns: Sequence[str]) -> tuple[list[Values], Codes]:
    """The combinations of values that occur, and for each row which of them it has."""
    return combined((_texts(name, table.column(name)) for name in columns), table.num_rows)


def combined(columns: Iterable[tuple[list[str | None], Codes]], rows: int) -> tuple[list[Values], Codes]:
    """The same, from the distinct values of each column and for each row which of them it has."""
    tuples: list[Values] = [()]
    codes = np.zeros(rows, dtype=np.int64)
    for texts, found in columns:
        # Numbered afresh after each column, so that the product of many columns cannot overflow.
        encoded = pa.array(codes * len(texts) + found).dictionary_encode()
        pairs = [divmod(code, len(texts)) for code in encoded.dictionary.to_pylist()]
        tuples = [(*tuples[before], texts[last]) for before, last in pairs]
        codes = encoded.indices.to_numpy().astype(np.int64)
    # Small integers are sorted by radix, which is several times faster.
    return tuples, codes.astype(np.int16) if len(tuples) < 2**15 else codes


def _texts(name: str, column: pa.ChunkedArray) -> tuple[list[str | None], Codes]:
    """The distinct values of a column as text, and for each row which of them it has."""
    encoded = column.combine_chunks().dictionary_encode()
    known: dict[str | None, int] = {}
    numbers = [known.setdefault(_text(name, value), len(known)) for value in encoded.dictionary]
    numbers.append(known.setdefault(None, len(known)) if encoded.null_count else 0)
    indices = encoded.indices.fill_null(len(numbers) - 1).to_numpy(zero_copy_only=False)
    return list(known), np.asarray(numbers, dtype=np.int64)[indices]


def _text(column: str, scalar: pa.Scalar) -> str | None:
    try:
        return value_text(scalar.as_py())
    except (ValueError, OverflowError) as error:
        raise TableError(
            f"partition_by: column {column} holds a time outside of the years 1 to 9999\n"
            f"Correct it at the source, or partition by another column."
        ) from error
