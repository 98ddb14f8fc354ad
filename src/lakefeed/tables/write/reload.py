"""Reload: the rows of a file, or of another part of a source, leave in the commit that brings its new rows.

Which rows these are is told by the column with the stream of each row; or else by the log, where a commit has
added rows of this file alone, in data files that nobody has written again. Where neither tells, nothing is
replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.errors import RowsNotReplaced
from lakefeed.events import Reload
from lakefeed.files.parquet import FileTarget
from lakefeed.tables.data_files import add_actions, data_files, read_rows, stored_row_count
from lakefeed.tables.log.data_file import DataFile, row_count
from lakefeed.tables.log.entry import read_entry
from lakefeed.tables.positions import application_id
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.tables.write.keyed.keys import KeyIndex
from lakefeed.tables.write.keyed.layout import Edit
from lakefeed.tables.write.keyed.lookup import find
from lakefeed.tables.write.mode import Change, NewEntry, Reloads, refuse_append_only
from lakefeed.tables.write.removal import NO_ROWS, entry_without


class ReloadMode:
    """Appends, and takes out the rows that the new ones replace. One object for one commit."""

    def __init__(self, targets: Callable[[Shape], FileTarget]) -> None:
        self._targets = targets

    def check(self, shape: Shape, path: str) -> None:
        """Raise TableError for a table whose rows must stay."""
        refuse_append_only(shape, path, "a reload replaces rows", "`on_change: ignore`")

    def entry(self, table: LakeTable, change: Change) -> NewEntry:
        """The rows of the change, in place of those that the version examined has of the same files."""
        assert change.reloads is not None
        self.check(table.shape, table.path)
        edits = former_rows(table, change.reloads)
        info = {"reloaded": change.reloads.to_commit_info(sum(len(edit.gone) for edit in edits))}
        return entry_without(table, change, edits, self._targets(table.shape), change.reloads.column, info)

    def landed(self, entry: NewEntry) -> None:
        """Nothing needs to be known of it."""


def former_rows(table: LakeTable, reloads: Reloads) -> list[Edit]:
    """The rows that go, by the data files that have them. Raises TableError where that is not certain."""
    files = data_files(table)
    if reloads.column is not None and not _is_null_somewhere(table, files, reloads.column):
        streams = sorted({one.stream for one in reloads.files})
        names = pa.table({reloads.column: pa.array(streams, table.schema.field(reloads.column).type)})
        found = find(table, names, KeyIndex(names, [reloads.column]))
        matches = found.matches
        without = {streams[at] for at in np.setdiff1d(np.arange(len(streams)), found.numbers)}
        _refuse_moved(table, files, reloads, [one for one in reloads.files if one.stream in without])
        # What stays is written again in the order in which it lies there.
        return [Edit(match.file, match.indexes, NO_ROWS, match.span, is_sorted=True) for match in matches]
    there = {file.path: file for file in files}
    alone = list(_added_alone(table, reloads))
    if any(path not in there or there[path].vector is not None for path in alone):
        raise _not_told(table, reloads)
    counts = {path: stored_row_count(table.store, there[path]) for path in alone}
    return [Edit(there[path], np.arange(count), NO_ROWS) for path, count in counts.items()]


def _refuse_moved(
    table: LakeTable, files: Sequence[DataFile], reloads: Reloads, without: Sequence[Reload]
) -> None:
    """Raise TableError where a file has no rows, and rows of its name below another folder may be of it."""
    if not without:
        return
    assert reloads.column is not None
    schema = pa.schema([table.schema.field(reloads.column)])
    for batch in read_rows(table, files, schema):
        streams = batch.column(0).unique()
        for one in without:
            others = streams.filter(pc.ends_with(streams, f"/{one.name}"))
            for folder in reloads.folders:
                others = others.filter(pc.invert(pc.starts_with(others, folder.rstrip("/") + "/")))
            if len(others):
                raise reloads.refused(
                    f"table {table.name}: no row is of {one.stream}, but rows of {others[0]} may be, from "
                    "before it was moved, so they cannot be replaced"
                )


def _is_null_somewhere(table: LakeTable, files: Sequence[DataFile], column: str) -> bool:
    """Whether rows may be of any file, as they were written before the table had the column."""
    actions = add_actions(table.delta)
    name = f"null_count.{column}"
    if column in table.partition_columns:
        return any(dict(file.partition)[column] is None for file in files)
    known = (
        dict(zip(actions["path"].to_pylist(), actions[name].to_pylist(), strict=True))
        if (name in actions.schema.names)
        else {}
    )
    schema = pa.schema([table.schema.field(column)])
    for file in files:
        count = known.get(file.logged)
        if count is None:
            count = sum(batch.column(0).null_count for batch in read_rows(table, [file], schema))
        if count:
            return True
    return False


def _added_alone(table: LakeTable, reloads: Reloads) -> Iterator[str]:
    """The paths of all data files that the former offsets were written to, each of one range alone.

    Raises TableError where a commit has rows of other offsets as well, or the log no longer tells.
    """
    name = application_id(reloads.pipeline, reloads.source, reloads.partition)
    spans = set(reloads.former)
    for version in range(table.version, -1, -1):
        if not spans:
            return
        try:
            entry = read_entry(table.store, version)
        except FileNotFoundError:
            break
        info = commit_info_of(entry.info)
        if _replays(info, reloads, spans):
            break
        if name not in entry.transactions or info.get("source") != reloads.source:
            continue
        start, end, *_ = (info.get("ranges") or {}).get(reloads.partition, (0, 0))
        met = {span for span in spans if span[0] < end and start < span[1]}
        alone = met == {(start, end)} and row_count(entry.adds) == info.get("rows")
        if met and entry.adds and not alone:
            break
        yield from (file.path for file in entry.adds if met)
        spans -= met
    if spans:
        raise _not_told(table, reloads)


def _replays(info: Mapping[str, Any], reloads: Reloads, spans: Collection[tuple[int, int]]) -> bool:
    """Whether a commit has rows of dead letters of these offsets, which are rows beside others."""
    if info.get("kind") != "replay":
        return False
    groups = [group for group in info.get("dead_letters", ()) if group[0] == reloads.source]
    offsets = [offset for *_, own in groups for offset in own]
    return any(start <= offset < end for offset in offsets for start, end in spans)


def _not_told(table: LakeTable, reloads: Reloads) -> RowsNotReplaced:
    is_reused = any(one.is_name_reused for one in reloads.files)
    by_path = "an earlier file had the same path, or may have had it"
    why = by_path if is_reused else "no column has the path for all of them (`metadata: {_topic: _file}`)"
    return reloads.refused(
        f"table {table.name}: nothing tells which of its rows are of {reloads.streams}, so they cannot be "
        f"replaced: {why}"
    )
