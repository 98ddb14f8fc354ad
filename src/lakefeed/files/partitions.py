"""Partitions of a table: their values as the log has them, their directories, and splitting rows by them."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefeed.errors import TableError

Values = tuple[str | None, ...]
"""The value of each partition column, in their order, as the log has it."""

Codes = npt.NDArray[np.integer[Any]]
"""For each row, which of some distinct values it has."""

_NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_NAME = 255


def split_by_partition(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Values, pa.Table]]:
    """The rows of each combination of values, in the order that they had, without the partition columns.

    Rows are copied once, and not at all when they share one combination.
    """
    rest = table.drop_columns(list(columns))
    if not columns or not table.num_rows:
        yield (), rest
        return
    values, codes = _combinations(table, columns)
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


def _directory_name(column: str, value: str | None) -> str:
    name = f"{quote(column, safe='')}={_NULL_DIRECTORY if value is None else quote(value, safe='')}"
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return f"{name[: _LONGEST_NAME - 33]}-{digest}"


def _combinations(table: pa.Table, columns: Sequence[str]) -> tuple[list[Values], Codes]:
    """The combinations of values that occur, and for each row which of them it has."""
    tuples: list[Values] = [()]
    codes = np.zeros(table.num_rows, dtype=np.int64)
    for name in columns:
        texts, found = _texts(name, table.column(name))
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
    places = [known.setdefault(_text(name, value), len(known)) for value in encoded.dictionary]
    places.append(known.setdefault(None, len(known)) if encoded.null_count else 0)
    indices = encoded.indices.fill_null(len(places) - 1).to_numpy(zero_copy_only=False)
    return list(known), np.asarray(places, dtype=np.int64)[indices]


def _text(column: str, scalar: pa.Scalar) -> str | None:
    """A value in the words of the log. The empty text and null are one there."""
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError) as error:
        raise TableError(
            f"partition_by: column {column} holds a time outside of the years 1 to 9999\n"
            f"Correct it at the source, or partition by another column."
        ) from error
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat() + ("Z" if value.tzinfo else "")
        case dt.date():
            return value.isoformat()
        case _:
            return str(value)
