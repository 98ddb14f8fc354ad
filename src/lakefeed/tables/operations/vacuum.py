"""Vacuum: files that no version within the retention needs are deleted from the store.

delta-rs's own full vacuum deletes whatever it does not know: live deletion vectors, tables within the table,
files behind links. So what is deleted is decided here, file by file, and only the log is delta-rs's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow.fs as pafs

from lakefeed.errors import TableError
from lakefeed.stores import store_errors
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import Extent, extent, stored_paths
from lakefeed.tables.log.listing import ListedFile, companion, listing
from lakefeed.tables.operations.operation import CommitInfo, Report, record
from lakefeed.tables.positions import tombstone_heads
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.retention import DAY, DELETED_FILES, retention
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.tombstones import TOMBSTONES_FOLDER, counted_for, referenced
from lakefeed.units import format_duration

MINIMUM = 7 * DAY
"""Seconds below which a retention needs to be allowed explicitly."""

_ORPHAN_AGE = DAY
"""A file that no version names may belong to a batch that is running; a day later it does not."""


@dataclass(frozen=True)
class VacuumPlan:
    """What a vacuum would delete; nothing has been changed."""

    version: int
    retain: float
    files: tuple[ListedFile, ...]
    young: Extent
    """Unneeded already, but kept because they are younger than the retention."""
    left_alone: tuple[str, ...]
    """What else lies there and is not the table's: strange files, links, tables within the table."""

    @property
    def deleted(self) -> Extent:
        """What would be deleted; it holds no rows of any version that is kept."""
        return Extent(len(self.files), sum(file.size for file in self.files), None)


def plan(
    table: LakeTable, *, retain: float | None = None, allow_short: bool = False, now: float | None = None
) -> VacuumPlan:
    """Look for files that were unneeded for `retain` seconds, by default for as long as the table says.

    Raises TableError when that is shorter than the table's own retention, or than seven days, unless
    `allow_short` is given: a reader that is at work, or a time travel, may still need what would be deleted.
    `now` replaces the machine's clock, for a caller that knows better.
    """
    refuse_unkept(table, "vacuum")
    own = retention(table.properties, DELETED_FILES)
    seconds = max(own, MINIMUM) if retain is None else retain
    _refuse_short(table, seconds, own, allow_short)
    table.refresh()
    _refuse_absolute(table)
    now = time.time() if now is None else now
    with store_errors(table.path):
        found = listing(table.store, table.partition_columns)
        needed, known = _needed(table, int((now - seconds) * 1000))
    every = [*found.data, *found.changes, *found.vectors, *found.kept]
    candidates = [file for file in every if file.path not in needed]
    with store_errors(table.path):
        remembered = _remembered(table, candidates)
    old = tuple(
        file
        for file in candidates
        if _is_old(file, file.path in known, now, max(seconds, remembered.get(file.path, 0.0)))
    )
    young = [file for file in candidates if file not in set(old)]
    return VacuumPlan(
        table.version,
        seconds,
        old,
        Extent(len(young), sum(file.size for file in young), None),
        (*found.nested, *found.links, *(path for path in found.strange if not path.endswith(".crc"))),
    )


def run(
    table: LakeTable, plan: VacuumPlan, commit_info: CommitInfo, *, on_file: Callable[[], None] = lambda: None
) -> Report:
    """Delete the files of the plan, except those that have come to be needed since.

    The commit that records it comes first, so that the log knows of whatever is deleted.
    """
    table.refresh()
    live = extent(data_files(table))
    with store_errors(table.path):
        needed, _ = _needed(table, int((time.time() - plan.retain) * 1000))
    files = [file for file in plan.files if file.path not in needed]
    before = live + Extent(len(files), sum(file.size for file in files))
    if not files:
        return Report("vacuum", before, live)
    info = {**commit_info, "files": len(files), "bytes": before.bytes - live.bytes, "retain": plan.retain}
    made = record(table, info)
    with store_errors(table.path):
        for file in files:
            _delete(table.store, file.path)
            on_file()
    return Report("vacuum", before, live, made)


def _needed(table: LakeTable, since: int) -> tuple[set[str], set[str]]:
    """Paths that a version within the retention has, and all paths that the log still knows.

    A file that was in the table at any moment since then is in the newest version, or a later entry of the
    log removes it: so no old version has to be loaded.
    """
    log = table.log()
    removed = log.removed()
    needed = set(stored_paths(data_files(table)))
    needed |= {path for path, at in removed.items() if at >= since}
    known = needed | removed.keys()
    # A checkpoint holds what was removed within the table's own retention. So the entries before it, of which
    # a stream makes many thousands a day, matter only to a retention that is longer.
    longer = time.time() - since / 1000 > retention(table.properties, DELETED_FILES)
    for entry in log.entries(0 if longer else log.newest_checkpoint + 1):
        paths = set(stored_paths((*entry.adds, *entry.removes, *entry.changes)))
        known |= paths
        if entry.timestamp >= since:
            needed |= paths
        needed |= set(stored_paths(file for file in entry.removes if file.modified >= since))
    return needed | referenced(table.store, tombstone_heads(table.transactions)), known


def _remembered(table: LakeTable, candidates: Sequence[ListedFile]) -> dict[str, float]:
    """For how many seconds files of tombstones are kept: a table that is restored needs what it names."""
    paths = [file.path for file in candidates if file.path.startswith(f"{TOMBSTONES_FOLDER}/")]
    return counted_for(table.store, tombstone_heads(table.transactions), paths)


def _is_old(file: ListedFile, known: bool, now: float, retain: float) -> bool:
    age = now - file.modified / 1000
    return age > retain if known else age > max(retain, _ORPHAN_AGE)


def _delete(store: pafs.FileSystem, path: str) -> None:
    with suppress(FileNotFoundError):
        store.delete_file(path)
    if isinstance(store, pafs.SubTreeFileSystem):
        with suppress(FileNotFoundError):
            store.delete_file(companion(path))


def _refuse_absolute(table: LakeTable) -> None:
    """What the log names by an absolute path looks like a path that it does not name."""
    paths = [file.path for file in data_files(table)]
    absolute = [path for path in paths if path.startswith(("/", "file:")) or "://" in path]
    if absolute:
        raise TableError(
            f"{table.path}: its log names files by absolute paths, such as {absolute[0]} (a clone?).\n"
            "Vacuum it with the engine that made it."
        )


def _refuse_short(table: LakeTable, retain: float, own: float, allowed: bool) -> None:
    if allowed or retain >= max(own, MINIMUM):
        return
    limit = f"the table's own {DELETED_FILES} is {format_duration(own)}"
    raise TableError(
        f"{table.path}: a retention of {format_duration(retain)} is too short; "
        + (limit if retain < own else f"below {format_duration(MINIMUM)} readers and time travel are at risk")
        + ".\nIf nobody reads old versions: --allow-short-retention."
    )
