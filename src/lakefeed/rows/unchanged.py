"""Columns that a change says nothing about: their names follow the columns from step to step.

A database leaves large values out of an update that has not touched them. A list for each row names the
columns; null where the row says something about each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from lakefeed.rows import Rows

LISTS = pa.list_(pa.string())
Mask = npt.NDArray[np.bool_]


def mentions(lists: pa.Array, name: str) -> Mask:
    """Which lists have a name."""
    mask = np.zeros(len(lists), np.bool_)
    parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    mask[parents[pc.equal(lists.flatten(), name).to_numpy(zero_copy_only=False)]] = True
    return mask


def lists_of(masks: Mapping[str, Mask], count: int) -> pa.Array:
    """A list for each of `count` rows: the names whose mask is true for it; null where there is none."""
    masks = {name: mask for name, mask in masks.items() if mask.any()}
    if not masks:
        return pa.nulls(count, LISTS)
    stacked = np.stack(list(masks.values()), axis=1)
    ends = np.concatenate([[0], stacked.sum(axis=1).cumsum()]).astype(np.int32)
    names = pa.array(list(masks)).take(pa.array(np.nonzero(stacked)[1]))
    lists = pa.ListArray.from_arrays(pa.array(ends), names)
    empty: Any = pc.equal(pc.list_value_length(lists), 0)
    return pc.if_else(empty, pa.scalar(None, LISTS), lists)


def translated(lists: pa.Array, columns: Callable[[str], Sequence[str]]) -> pa.Array:
    """The same lists after a step; `columns` says for each column which ones the step makes of it."""
    if lists.null_count == len(lists):
        return lists
    masks: dict[str, Mask] = {}
    for name in lists.flatten().unique().to_pylist():
        for column in columns(name):
            masks[column] = mentions(lists, name) | masks.get(column, False)
    return lists_of(masks, len(lists)).cast(lists.type)


def lacking(lists: pa.Array | None, columns: Collection[str]) -> Mask:
    """Which rows say nothing about one of some columns; none without lists."""
    if lists is None or lists.null_count == len(lists):
        return np.zeros(0 if lists is None else len(lists), np.bool_)
    mask = np.zeros(len(lists), np.bool_)
    for name in columns:
        mask |= mentions(lists, name)
    return mask


def unknown_value(reader: str, rows: Rows, at: int, columns: Collection[str]) -> tuple[str, str]:
    """Code and text for a change that does not carry what `reader`, such as `where`, reads."""
    assert rows.unchanged is not None
    names = ", ".join(name for name in rows.unchanged[at].as_py() if name in columns)
    return "unknown_value", f"{reader} reads {names}, which the change does not carry.{REMEDY}"


REMEDY = " With REPLICA IDENTITY FULL of its table, the database sends every column."
"""What to do about changes that do not carry all columns."""
