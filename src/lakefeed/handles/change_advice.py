"""What the owner of a table of changes should know before a run: an order that may be none, a dear layout."""

from __future__ import annotations

from lakefeed.handles.handle import TableHandle
from lakefeed.tables.positions import named_partition
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.text import counted

_ENTRIES = 20
"""So many of the newest entries are looked at."""
_DEAR = 20
"""Rows that were written again for each change."""
_MOST = 0.5
"""The share of a table that counts as most of it."""


def change_warnings(handle: TableHandle, table: LakeTable | None) -> list[str]:
    """What to say of a table with `mode: upsert` or `history`; nothing of others."""
    spec = handle.spec
    if spec is None or spec.mode not in ("upsert", "history"):
        return []
    found = []
    partitions = {name for name in table.transactions if named_partition(name)} if table else set()
    if not spec.sequence_by and len(partitions) != 1:
        found.append(
            "without `sequence_by` the position decides which change is newer, which is right only while all "
            "changes of a key are in one partition; name a column that grows with each change"
        )
    if table is not None and spec.updates != "merge_on_read" and (cost := _cost(table)):
        found.append(cost)
    return found


def _cost(table: LakeTable) -> str:
    """What the last commits have written again, where that was most of the table each time."""
    log = table.log()
    told = [commit_info_of(entry.info) for entry in log.entries(log.newest - _ENTRIES + 1)]
    dear = [
        info for info in told if info.get("copied") and info["copied"] > _MOST * max(1, info.get("rows", 0))
    ]
    copied, applied = (sum(info.get(name, 0) for info in dear) for name in ("copied", "applied"))
    if len(dear) < 2 or copied < _DEAR * max(1, applied):
        return ""
    return (
        f"the last {counted(len(dear), 'commit')} with changes wrote {copied:,} rows again for {applied:,} "
        "changes; `updates: merge_on_read` writes the changes alone, and a `flush.interval` of 10s or more "
        "gathers them"
    )
