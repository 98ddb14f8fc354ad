"""Rewinding one table: an older version comes back with the positions that it had, in one commit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from lakefeed.errors import TableError, UsageError
from lakefeed.stores import is_locked
from lakefeed.tables.detail.detail import instant
from lakefeed.tables.log.data_file import stored_paths
from lakefeed.tables.log.entry import Entry
from lakefeed.tables.log.listing import file_sizes
from lakefeed.tables.log.log import Log, Snapshot
from lakefeed.tables.positions import absent, named_partition
from lakefeed.tables.table import LakeTable, commit_info_of, commit_properties
from lakefeed.tables.write.keyed.tombstones import go_back, refuse_forgotten
from lakefeed.text import counted

_OWN_KINDS = (
    "rows",
    "overwrite",
    "upsert",
    "history",
    "deduplicate",
    "end",
    "refresh",
    "position",
    "create",
    "rewind",
    "replay",
    "alter",
    "evolve",
    "dead_letters",
)


@dataclass
class Rewind:
    """What a rewind of a table would do. Positions are next offsets."""

    from_version: int
    to_version: int
    to_time: str | None
    now: Snapshot
    then: Snapshot
    positions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By application id: where it is, and where it goes."""
    transactions: dict[str, int] = field(default_factory=dict)
    """What the log must hold afterwards."""
    replays: list[dict[str, Any]] = field(default_factory=list)
    """The commit info of the replays whose rows the newest version has, and the older one may lack."""
    former_replays: list[dict[str, Any]] = field(default_factory=list)
    """The commit info of those whose rows the older version has, where rewinds since have undone them."""
    undone: list[str] = field(default_factory=list)
    """What others, or deletions on purpose, have done since, and what a rewind undoes."""


def plan_rewind(log: Log, to_version: int | None, to_time: dt.datetime | None) -> Rewind:
    """Find out what a rewind means. Raises UsageError for a version that is none, TableError for one gone."""
    target = _version_at(log, to_time) if to_version is None else to_version
    if not 0 <= target < log.newest:
        raise UsageError(
            f"version {target} cannot be the target of a rewind: the newest is {log.newest}.\n"
            f"Give one from {log.oldest or 0} to {log.newest - 1}."
        )
    then, now = log.snapshot(target), log.snapshot(log.newest)
    _refuse_vacuumed(log, then, now)
    refuse_forgotten(log.store, then.transactions, target)
    found = Rewind(log.newest, target, _time(log, target), now, then)
    begun: dict[str, int] = {}
    for version in range(target + 1, log.newest + 1):
        entry = log.entry(version)
        commit_info = commit_info_of(entry.info)
        if commit_info.get("kind") == "rebuild":
            raise TableError(
                f"version {target} cannot be the target of a rewind: version {version} rebuilt the table "
                f"and its dead letters.\nChoose version {version} or a newer one. For the former rows, set "
                "the options of the file back and use `lakefeed rebuild`."
            )
        _note_beginnings(commit_info, begun)
        if (text := _other(entry, commit_info)) is not None:
            found.undone.append(text)
    found.replays, found.former_replays = _replays(log, target)
    _set_positions(found, begun)
    return found


def _replays(log: Log, target: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The replays that only the newest version goes back to, and those that only the target does.

    A version goes back to the one before it, that of a rewind to the one that it has restored.
    """
    newest, older, undone, former = log.newest, target, list[dict[str, Any]](), list[dict[str, Any]]()
    while newest != older:
        version, replays = (newest, undone) if newest > older else (older, former)
        if version not in log.versions:
            raise TableError(
                f"version {target} cannot be restored: the log no longer has version {version}, which may "
                "have made rows of dead letters.\nChoose a newer version."
            )
        commit_info = commit_info_of(log.entry(version).info)
        if commit_info.get("kind") == "replay":
            replays.append(commit_info)
        before = commit_info["to"] if commit_info.get("kind") == "rewind" else version - 1
        newest, older = (before, older) if newest > older else (newest, before)
    return undone[::-1], former[::-1]


def restore(table: LakeTable, rewind: Rewind, transactions: Mapping[str, int], commit_info: Any) -> int:
    """Bring the files and the positions back, in one commit; returns its version.

    Raises TableError, with nothing changed, when anybody has committed since the plan was made.
    """
    if table.version != rewind.from_version:
        raise _overtaken(table)

    with_tombstones = {**transactions, **go_back(table, rewind.then.transactions)}

    def restore_version(delta: DeltaTable) -> None:
        delta.restore(
            rewind.to_version,
            # The plan has looked for the files; a copy of the log has none.
            ignore_missing_files=is_locked(table.store),
            commit_properties=commit_properties(with_tombstones, commit_info),
        )

    try:
        table.change(restore_version, since=rewind.to_version)
    except CommitFailedError as error:
        raise _overtaken(table) from error
    return table.version


def _overtaken(table: LakeTable) -> TableError:
    return TableError(
        f"table {table.name}: another writer has written to {table.path} in the meantime; nothing was "
        f"rewound.\n"
        "Stop every instance of the pipeline, then try again."
    )


def _version_at(log: Log, moment: dt.datetime | None) -> int:
    """The newest version that was there at that time."""
    assert moment is not None
    wanted = int(moment.timestamp() * 1000)
    oldest = log.oldest or 0
    for version in range(log.newest, oldest - 1, -1):
        time = log.entry(version).committed if version in log.versions else None
        if time is not None and time <= wanted:
            return version
    raise UsageError(
        f"there was no version at {moment.isoformat()}: the oldest version in the log is {oldest}, of "
        f"{_time(log, oldest) or 'an unknown time'}.\nGive a later time, or --to-version."
    )


def _time(log: Log, version: int) -> str | None:
    return instant(log.entry(version).committed) if version in log.versions else None


def _refuse_vacuumed(log: Log, then: Snapshot, now: Snapshot) -> None:
    wanted = sorted({*stored_paths(then.files.values())} - {*stored_paths(now.files.values())})
    sizes = file_sizes(log.store) if wanted else {}
    gone = [path for path in wanted if path not in sizes]
    if gone:
        raise TableError(
            f"version {then.version} cannot be restored: {counted(len(gone), 'file')} of it "
            f"{'is' if len(gone) == 1 else 'are'} gone, such as {gone[0]}.\n"
            "A vacuum has removed what no newer version needs; choose a newer version."
        )


def _note_beginnings(commit_info: Mapping[str, Any], begun: dict[str, int]) -> None:
    """Remember where partitions began that the older version does not know."""
    for name, first in (commit_info.get("ingest") or {}).items():
        begun.setdefault(name, first)
    for partition, span in (commit_info.get("ranges") or {}).items():
        begun.setdefault(f"{commit_info.get('pipeline')}/{commit_info.get('source')}/{partition}", span[0])


def _other(entry: Entry, commit_info: Mapping[str, Any]) -> str | None:
    """What a version did to the rows that was not reading events; None for a run's own commits."""
    kind = commit_info.get("kind")
    if not entry.data_change or kind in _OWN_KINDS or commit_info.get("ranges"):
        return None
    who = f"{kind} by Lakefeed" if kind else f"{entry.info.get('operation', 'a commit')} of another writer"
    files = f"{counted(len(entry.adds), 'file')} added, {len(entry.removes)} removed"
    return f"version {entry.version}: {who}, {files}"


def _set_positions(found: Rewind, begun: Mapping[str, int]) -> None:
    for name, now in found.now.transactions.items():
        if name.endswith("/#replay"):
            continue
        # An older version may lie before the first run of `mode: overwrite`, or before the end of that, or
        # before the first refresh of a query.
        then = found.then.transactions.get(name, absent(name))
        if then is None and name in begun:
            then = begun[name] - 1
        if then is None or then == now:
            continue
        found.transactions[name] = then
        if named_partition(name):
            found.positions[name] = (now + 1, then + 1)
