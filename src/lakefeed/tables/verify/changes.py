"""What a proof can say of a table whose rows change: every change was counted, and no key is there twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.tables.data_files import read_rows
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.keys import KeyIndex

_PARTS = {
    "upsert": ("applied", "stale", "folded"),
    "history": ("applied", "stale", "folded"),
    "deduplicate": ("rows", "duplicates"),
}
"""By mode: what the changes of a commit became, which is counted in its commit info."""

_LEFT_OUT = ("filtered", "skipped", "dropped")
"""Keys of commit info for events that became neither rows nor dead letters, on purpose."""


def events_left(commit_info: Mapping[str, Any]) -> int | None:
    """The events of a commit that are neither dead letters nor left out; None in a table of a route."""
    if commit_info.get("routed"):
        return None
    ranges = (commit_info.get("ranges") or {}).values()
    left: int = sum(span[2] - span[3] - sum(span[4:]) for span in ranges)
    # A function of the user's takes events, and what is filtered behind it are rows.
    gone = [key for key in _LEFT_OUT if key != "filtered" or "taken" not in commit_info]
    return left - sum(_total(commit_info.get(key)) for key in gone)


def _total(value: Any) -> int:
    return sum(value.values()) if isinstance(value, dict) else int(value or 0)


def is_keyed(commit_info: Mapping[str, Any]) -> bool:
    """Whether a commit has applied changes by their keys."""
    return commit_info.get("mode") in _PARTS


def change_problems(commit_info: Mapping[str, Any], left: int | None, added: int | None) -> Iterator[str]:
    """What does not add up; `left` are the events that were read and not left out, `added` the new rows.

    None where that cannot be said.
    """
    changes, parts = commit_info.get("changes", 0), _PARTS[commit_info["mode"]]
    counts = [commit_info.get(part, 0) for part in parts]
    if sum(counts) != changes:
        shown = ", ".join(f"{count:,} {part}" for count, part in zip(counts, parts, strict=True))
        yield f"{changes:,} changes do not add up to {shown}"
    if left is not None and "taken" not in commit_info and left != changes:
        yield f"{left:,} events were read for it, and {changes:,} of them became changes"
    reported = commit_info.get("rows")
    if added is not None and reported is not None and reported != added:
        yield f"the commit reports {reported:,} rows, its files have {added:,}"


def repeated_keys(table: LakeTable, files: Iterable[DataFile], keys: Sequence[str]) -> tuple[int, str]:
    """How many rows are too much because their key is there already, and one such key."""
    schema = pa.schema([table.schema.field(name) for name in keys])
    rows = pa.Table.from_batches(read_rows(table, files, schema), schema).combine_chunks()
    numbers = KeyIndex(rows, keys).numbers
    known = numbers[numbers >= 0]
    counts = np.bincount(known)
    surplus = int((counts[counts > 1] - 1).sum())
    if not surplus:
        return 0, ""
    (first,) = rows.slice(int(np.flatnonzero(numbers == np.argmax(counts > 1))[0]), 1).to_pylist()
    return surplus, ", ".join(f"{name}={value}" for name, value in first.items())
