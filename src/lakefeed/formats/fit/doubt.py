"""Doubt: which values of a column a check on the whole column cannot decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.formats.refusal import is_utf8

Doubt = np.ndarray[tuple[int], np.dtype[np.bool_]] | None
"""Which values must be looked at one by one; None for none of them."""


def either(one: Doubt, other: Doubt) -> Doubt:
    """Both doubts together."""
    return other if one is None else one if other is None else one | other


def kept(column: pa.Array, good: pa.Array) -> tuple[pa.Array, Doubt]:
    """The column with null for what is not good, and doubt about it."""
    doubt = pc.invert(good).fill_null(False).to_numpy(zero_copy_only=False)
    return (pc.if_else(good, column, None), doubt) if doubt.any() else (column, None)


def new_nulls(column: pa.Array, given: pa.Array) -> Doubt:
    """Doubt about the values that became null on the way from the given column."""
    if column.null_count == given.null_count:
        return None
    doubt: Doubt = pc.and_(column.is_null(), given.is_valid()).to_numpy(zero_copy_only=False)
    return doubt


def utf8_texts(content: pa.BinaryArray) -> tuple[pa.StringArray, Doubt]:
    """Bytes as texts, empty where they are not UTF-8, and doubt about these."""
    try:
        return content.cast(pa.string()), None
    except pa.ArrowInvalid:
        odd = np.array([not is_utf8(each or b"") for each in content.to_pylist()], np.bool_)
    return pc.if_else(pa.array(odd), b"", content).cast(pa.string()), odd


def with_rows(values: pa.StructArray, indexes: Sequence[int], rows: Sequence[Any]) -> pa.StructArray:
    """The values with these rows at the indexes, as the strict path of a format has read them."""
    order = np.arange(len(values))
    order[list(indexes)] = len(values) + np.arange(len(indexes))
    return pa.concat_arrays([values, pa.array(rows, values.type)]).take(pa.array(order))


def lifted(offsets: np.ndarray[Any, Any], doubt: Doubt) -> Doubt:
    """Doubt about elements as doubt about the lists that hold them, which begin at the offsets."""
    if doubt is None:
        return None
    lists = np.zeros(len(offsets) - 1, np.bool_)
    lists[np.searchsorted(offsets, np.flatnonzero(doubt), side="right") - 1] = True
    return lists
