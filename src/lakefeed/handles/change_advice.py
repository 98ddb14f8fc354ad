"""What the owner of a table of changes should know before a run: an order that may be none, a dear layout."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakefeed.columns.column_types import stored
from lakefeed.handles.handle import TableHandle
from lakefeed.tables.data_files import data_files
from lakefeed.tables.positions import named_partition
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.text import counted, listed

_STREAM = "_stream"
_ENTRIES = 20
"""So many of the newest entries are looked at."""
_DEAR = 20
"""Rows that were written again for each change."""
_MOST = 0.5
"""The share of a table that counts as most of it."""
_GATHERED = 10.0
"""Seconds for which changes are gathered where each batch writes most of the table again."""


def change_warnings(
    handle: TableHandle, table: LakeTable | None, interval: float, *, in_order: bool
) -> list[str]:
    """What to say of a table with `mode: upsert` or `history`; nothing of others.

    `interval` are the seconds after which its batches end. `in_order` says that it has one source, whose
    events are all in one partition.
    """
    spec = handle.spec
    if spec is None or spec.mode not in ("upsert", "history"):
        return []
    found = []
    partitions = {name for name in table.transactions if named_partition(name)} if table else set()
    if not (spec.sequence_by or in_order or len(partitions) == 1):
        found.append(
            "without `sequence_by` the position decides which change is newer, which is right only while all "
            "changes of a key are in one partition; name a column that grows with each change"
        )
    if table is not None and spec.updates != "merge_on_read":
        found += _costs(table, interval)
    return found


def vectors_warning(handle: TableHandle) -> str:
    """What to say of deletion vectors in partitions with encoded paths; empty where there are none.

    Of a table that does not exist and has no `schema`, the types are not known yet.
    """
    spec = handle.spec
    if spec is None or spec.updates != "merge_on_read":
        return ""
    schema = handle.table.schema if handle.exists else stored(spec.declared or pa.schema([]))
    types = {field.name: field.type for field in schema}
    encoded = [one.name for one in handle.partition_fields if one.may_be_encoded(types.get(one.name))]
    if not encoded:
        return ""
    return (
        f"`updates: merge_on_read` with partition_by {listed(encoded)}: where a value has spaces, colons, "
        "letters beyond a to z or the like, the path has a percent sign, and Polars shows rows there that "
        "were removed; if Polars reads the table, use `updates: copy_on_write`, or partition by a date or a "
        "whole number"
    )


def mapping_warning(handle: TableHandle) -> str:
    """What to say of partition columns in a table with column mapping; empty where there are none."""
    spec = handle.spec
    if spec is None or not spec.partition_fields:
        return ""
    if not (handle.table.shape.is_mapped if handle.exists else spec.keeps_names):
        return ""
    return (
        f"partition_by {listed([one.name for one in spec.partition_fields])} in a table with column mapping: "
        "DuckDB reads NULL in these columns; if DuckDB reads the table, leave out `names: keep` or "
        "`partition_by`"
    )


def route_warning(handle: TableHandle) -> str:
    """What to say of copies that are parted by a value of their rows; empty where there are none."""
    spec = handle.spec
    if spec is None or spec.routed is None or handle.id.key or not handle.follows_database:
        return ""
    names = [name for name in spec.routed.columns if name != spec.rename.get(_STREAM, _STREAM)]
    if not names:
        return ""
    return (
        f"`route` names {listed(names)}: where that changes in a row, the row stays in the table of its old "
        "value as well, and a deletion that does not carry it is a dead letter; `partition_by` in one table "
        "follows such changes"
    )


def _costs(table: LakeTable, interval: float) -> Iterator[str]:
    """What the last commits have written again, where that was much for what they changed."""
    told = [commit_info_of(entry.info) for entry in table.log().newest_entries(_ENTRIES)]
    # A batch of new keys alone writes nothing again.
    told = [info for info in told if info.get("applied") and info.get("rewritten")]
    if len(told) < 2:
        return
    copied, applied = (sum(info.get(name, 0) for info in told) for name in ("copied", "applied"))
    if copied < _DEAR * applied:
        return
    yield (
        f"the last {counted(len(told), 'commit')} that changed rows wrote {copied:,} others again for "
        f"{applied:,} changes; `updates: merge_on_read` writes the changes alone"
    )
    rows = sum(file.rows or 0 for file in data_files(table))
    most = [info for info in told if info.get("copied", 0) > _MOST * rows]
    if interval < _GATHERED and len(most) > len(told) / 2:
        yield (
            f"{len(most)} of the last {counted(len(told), 'commit')} that changed rows wrote most of the "
            "table again; a `flush.interval` of 10s or more gathers changes; many cost hardly more than few"
        )
