"""Restore: a table becomes again what an older version was, in a new version."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from lakefeed.errors import Conflict, TableError, UsageError
from lakefeed.stores import is_locked, store_errors
from lakefeed.tables.data_files import data_files, files_at, refuse_respelled
from lakefeed.tables.detail.detail import instant
from lakefeed.tables.log.checkpoint import read_transactions
from lakefeed.tables.log.data_file import Extent, extent, stored_paths
from lakefeed.tables.operations.operation import CommitInfo, Report, change
from lakefeed.tables.positions import is_position
from lakefeed.tables.protocol import refuse_append_only, refuse_unkept
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.tombstones import go_back, refuse_forgotten


@dataclass(frozen=True)
class RestorePlan:
    """What a restore would do; nothing has been changed."""

    version: int
    to_version: int
    brought_back: Extent
    taken_away: Extent
    table: Extent
    moved: Mapping[str, tuple[int | None, int]]
    """Positions by application id: what the old version held (None: nothing), and what the log holds now."""
    then: Mapping[str, int]
    """The transactions of the old version; its tombstones come back, which belong to its rows."""


def plan(table: LakeTable, to: int | dt.datetime) -> RestorePlan:
    """Compare the newest version with the one to go back to, by number or as of a moment.

    Raises TableError when a file of that version is no longer in the store.
    """
    refuse_unkept(table, "restore")
    refuse_append_only(table, "restore")
    old = _old_version(table, to)
    table.refresh()
    now = {file.path: file for file in data_files(table)}
    then = {file.path: file for file in files_at(table, old.version())}
    # The same file with other rows deleted is another one.
    back = [file for path, file in then.items() if path not in now or now[path].vector != file.vector]
    away = [file for path, file in now.items() if path not in then or then[path].vector != file.vector]
    refuse_respelled(table, [*back, *away])
    _refuse_missing(table, old.version(), stored_paths(back))
    with store_errors(table.path):
        transactions = read_transactions(table.store, old.version())
        refuse_forgotten(table.store, transactions, old.version())
    return RestorePlan(
        table.version,
        old.version(),
        extent(back),
        extent(away),
        extent(now.values()),
        _moved(table, transactions),
        transactions,
    )


def refuse_moved(table: LakeTable, plan: RestorePlan, file: str = "FILE") -> None:
    """Raise TableError when positions have moved since: a restore takes back the rows and not the positions.

    The events between would be in no version, and would never be read again. `file` is the pipeline file, as
    a hint names it.
    """
    if not plan.moved:
        return
    name, (then, now) = next(iter(plan.moved.items()))
    held = "nothing" if then is None else f"up to offset {then}"
    raise TableError(
        f"{table.path}: version {plan.to_version} had read {held} of {name!r}, and the newest version has "
        f"read up to offset {now}, as the log counts them.\n"
        "A restore changes rows, not positions: the events in between would be lost.\n"
        f"To move both: lakefeed rewind {file} --table NAME --to-version {plan.to_version}. "
        "To leave positions as they are: --keep-positions."
    )


def run(table: LakeTable, plan: RestorePlan, commit_info: CommitInfo) -> Report:
    """Restore in one commit; the positions in the log stay as they are (see `refuse_moved`).

    Tombstones go back with the rows: a deletion that is undone must not make later changes stale. Raises
    Conflict where others have committed since the plan was made: the rows of their events would be lost.
    """
    before = extent(data_files(table))

    def restore(delta: DeltaTable, properties: CommitProperties) -> None:
        if delta.version() != plan.version:
            raise Conflict(
                f"{table.path}: another writer has changed the table since version {plan.version}; nothing "
                "was restored.\nStop every run that writes to it, then run it again."
            )
        # The plan has looked for the files; a copy of the log has none.
        delta.restore(
            plan.to_version, ignore_missing_files=is_locked(table.store), commit_properties=properties
        )

    info = {**commit_info, "to_version": plan.to_version}
    tombstones = go_back(table, plan.then)
    made = change(table, info, restore, tries=1, since=plan.to_version, transactions=tombstones)
    return Report("restore", before, extent(data_files(table)), made)


def _old_version(table: LakeTable, to: int | dt.datetime) -> DeltaTable:
    try:
        old = table.at(to)
    except (TableError, DeltaError, ValueError) as error:
        there = list(table.log().versions)
        raise UsageError(
            f"{table.path} cannot be read as of {to}; its log holds versions {there[0]} to {there[-1]}."
        ) from error
    if isinstance(to, dt.datetime):
        _refuse_before_the_first(table, old, to)
    elif old.version() != to:
        raise UsageError(f"{table.path} has no version {to}; the newest is {table.version}.")
    return old


def _refuse_before_the_first(table: LakeTable, old: DeltaTable, to: dt.datetime) -> None:
    """Raise UsageError for a moment before the log begins: what is found for it is the first version."""
    log = table.log()
    oldest, written = next(iter(log.versions.items()))
    said = log.entry(oldest).committed
    made = written if said is None else min(written, said)
    if old.version() == oldest and made > to.timestamp() * 1000:
        raise UsageError(
            f"{table.path}: there was no version at {to.isoformat()}: the oldest version in the log is "
            f"{oldest}, of {instant(made)}.\nGive a later time, or --to-version."
        )


def _refuse_missing(table: LakeTable, version: int, paths: list[str]) -> None:
    with store_errors(table.path):
        infos = table.store.get_file_info(paths) if paths else []
    missing = [info.path for info in infos if info.type != pafs.FileType.File]
    if missing:
        raise TableError(
            f"{table.path}: {len(missing)} of the files of version {version} are gone, {missing[0]} among "
            "them; a vacuum has deleted them.\nChoose a newer version: lakefeed table history PATH"
        )


def _moved(table: LakeTable, then: Mapping[str, int]) -> dict[str, tuple[int | None, int]]:
    return {
        name: (then.get(name), now)
        for name, now in table.transactions.items()
        if then.get(name) != now and is_position(name)
    }
