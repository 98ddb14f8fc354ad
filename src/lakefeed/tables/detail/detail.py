"""A table at one glance: what it is, what it holds, who writes it, and what could be better."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakefeed.columns.column_types import meant_text
from lakefeed.errors import TableError
from lakefeed.stores import store_errors
from lakefeed.tables.data_files import data_files
from lakefeed.tables.detail.advice import advice
from lakefeed.tables.log.data_file import (
    DataFile,
    Extent,
    by_partition,
    extent,
    partition_text,
    row_count,
    small_below,
)
from lakefeed.tables.log.entry import Entry, read_entry
from lakefeed.tables.protocol import features
from lakefeed.tables.rewrite.compact import target_of
from lakefeed.tables.table import LakeTable, commit_info_of

_COMMITS, _PARTITIONS = 5, 10
"""So many commits, the newest, and partitions, the largest, are described."""
_COMMANDS = ("rewind", "replay", "discard")
"""What only a command does, though a pipeline's name is in its commit info."""
_WHOLE = ("overwrite", "refresh", "rewind", "restore", "replace")
"""What replaces files by others, and counts no rows in its metrics."""


@dataclass(frozen=True)
class Commit:
    """One version, as its log entry describes it."""

    version: int
    timestamp: str
    operation: str
    by: str
    reason: str | None
    rows_added: int | None
    """None where the log does not say."""
    rows_removed: int | None
    metrics: Mapping[str, Any]
    account: Mapping[str, Any]
    """The commit info of Lakefeed, under the name that `--json` has for it; empty for commits of others."""


@dataclass(frozen=True)
class PartitionSize:
    """One partition and how much is in it."""

    partition: str
    extent: Extent


@dataclass(frozen=True)
class Description:
    """What `lakefeed table detail` shows."""

    path: str
    id: str
    name: str | None
    description: str | None
    version: int
    created: str | None
    schema: Mapping[str, str]
    partition_by: Sequence[str]
    table: Extent
    small_files: int
    target_file_size: int
    partition_count: int
    partitions: Sequence[PartitionSize]
    """The largest ones."""
    reader_version: int
    writer_version: int
    features: Sequence[str]
    properties: Mapping[str, str]
    owners: Sequence[str]
    """Who has positions in the log (pipelines and their sources), and the engines of the last commits."""
    positions: Mapping[str, int]
    commits: Sequence[Commit]
    advice: Sequence[str]


def describe(table: LakeTable, filters: Sequence[str] = ()) -> Description:
    """Look at the newest version; reads the log and no data."""
    with store_errors(table.path):
        files = data_files(table)
        metadata, protocol = table.delta.metadata(), table.delta.protocol()
        target = target_of(table)
        last = history(table, _COMMITS)
        return Description(
            path=table.path,
            id=str(metadata.id),
            name=metadata.name,
            description=metadata.description,
            version=table.version,
            created=instant(metadata.created_time),
            schema={
                field.name: meant_text(field) + ("" if field.nullable else " not null")
                for field in table.schema
            },
            partition_by=table.partition_columns,
            table=extent(files),
            small_files=sum(file.size < small_below(target) for file in files),
            target_file_size=target,
            partition_count=len(by_partition(files)) if table.partition_columns else 0,
            partitions=_largest(files) if table.partition_columns else [],
            reader_version=protocol.min_reader_version,
            writer_version=protocol.min_writer_version,
            features=features(table.delta),
            properties=dict(sorted(table.properties.items())),
            owners=_owners(table, last),
            positions=dict(sorted(table.transactions.items())),
            commits=last,
            advice=advice(table, filters),
        )


def history(table: LakeTable, limit: int | None = None) -> list[Commit]:
    """The last versions whose entries are still there, newest first."""
    with store_errors(table.path):
        found = (_commit(table, info) for info in table.delta.history(limit))
        return [commit for commit in found if commit is not None]


def instant(milliseconds: int | None) -> str | None:
    """A moment as people and programs read it: `2026-11-15T10:30:00.123Z`."""
    if milliseconds is None:
        return None
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _commit(table: LakeTable, info: Mapping[str, Any]) -> Commit | None:
    """One version; None where its entry was cleaned up meanwhile."""
    try:
        entry = read_entry(table.store, info["version"])
    except FileNotFoundError:
        return None
    commit_info = commit_info_of(info)
    metrics = info.get("operationMetrics")
    metrics = metrics if isinstance(metrics, dict) else {}
    added, removed = _moved(entry, metrics)
    if "touched" in commit_info:
        # What changes by key have left alone is copied with the rest, and counted apart.
        added = int(commit_info["rows"]) - int(commit_info["copied"])
        removed = int(commit_info["touched"]) - added
    elif "reloaded" in commit_info:
        # Rows beside those of the file are written again with the new ones.
        added, removed = int(commit_info["rows"]), int(commit_info["reloaded"]["rows"])
    elif removed is None and _is_whole(entry, commit_info):
        gone = _rows_gone(table, entry)
        added, removed = _less_kept(row_count(entry.adds), gone, metrics.get("num_added_rows"))
    return Commit(
        version=info["version"],
        timestamp=instant(info.get("timestamp")) or "",
        operation=str(commit_info.get("kind") or info.get("operation") or "unknown"),
        by=_by(info, commit_info),
        reason=commit_info.get("reason"),
        rows_added=added,
        rows_removed=removed,
        metrics=metrics,
        account=commit_info,
    )


def _moved(entry: Entry, metrics: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """How many rows a version added and took away, as far as its entry says."""
    came = [file for file in entry.adds if file.data_change]
    if not any(file.data_change for file in entry.removes):
        return row_count(came), 0
    # What a statement kept is written again with what it changed, so the files do not show it.
    inserted, updated, deleted = (_metric(metrics, kind) for kind in ("Inserted", "Updated", "Deleted"))
    if inserted is updated is deleted is None:
        return (None, None) if came else (0, None)
    return (inserted or 0) + (updated or 0), (deleted or 0) + (updated or 0)


def _by(info: Mapping[str, Any], commit_info: Mapping[str, Any]) -> str:
    """The pipeline, or the command and who typed it; of others, the engine."""
    if not commit_info:
        return str(info.get("engineInfo") or "unknown")
    if commit_info.get("kind") in _COMMANDS or commit_info.get("by") == "command":
        return ", ".join(["lakefeed command", *filter(None, [commit_info.get("who")])])
    pipeline = commit_info.get("pipeline")
    return f"lakefeed pipeline {pipeline}" if pipeline else f"lakefeed {commit_info.get('by') or 'unknown'}"


def _is_whole(entry: Entry, commit_info: Mapping[str, Any]) -> bool:
    """Whether its rows are those of its files: files were removed, or replaced by others."""
    came = any(file.data_change for file in entry.adds)
    return not came or commit_info.get("kind") in _WHOLE


def _less_kept(written: int | None, gone: int | None, added: int | None) -> tuple[int | None, int | None]:
    """What came and went, without the rows that were only written again; `added` as delta-rs counts it."""
    if written is None or gone is None or added is None:
        return written, gone
    return added, gone - (written - added)


def _rows_gone(table: LakeTable, entry: Entry) -> int | None:
    """How many rows the files held that a version took away; None where the log no longer says."""
    try:
        files = table.log().snapshot(entry.version - 1).files
    except TableError:
        return None
    return row_count(files.get(file.path) for file in entry.removes)


def _metric(metrics: Mapping[str, Any], kind: str) -> int | None:
    names = (
        f"num{kind}Rows",
        f"num_{kind.lower()}_rows",
        f"numTargetRows{kind}",
        f"num_target_rows_{kind.lower()}",
    )
    found = next((metrics[name] for name in names if name in metrics), None)
    return None if found is None else int(found)


def _largest(files: list[DataFile]) -> list[PartitionSize]:
    groups = [PartitionSize(partition_text(at), extent(group)) for at, group in by_partition(files).items()]
    return sorted(groups, key=lambda group: -group.extent.bytes)[:_PARTITIONS]


def _owners(table: LakeTable, last: list[Commit]) -> list[str]:
    feeds = {tuple(name.split("/")[:2]) for name in table.transactions if name.count("/") > 1}
    pipelines = [f"pipeline {pipeline}, source {source}" for pipeline, source in sorted(feeds)]
    engines = list(dict.fromkeys(commit.by for commit in last if not commit.account))
    return [*pipelines, *engines]
