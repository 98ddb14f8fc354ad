"""Vacuum: files that no version within the retention needs are deleted from the store.

delta-rs's own full vacuum deletes whatever it does not know: live deletion vectors, tables within the table,
files behind links. So what is deleted is decided here, file by file, and only the log is delta-rs's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from lakefeed.errors import TableError
from lakefeed.stores import delete_files, local_folder, parallel_map, store_errors
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import Extent, extent, stored_paths
from lakefeed.tables.log.entry import LOG, read_entry
from lakefeed.tables.log.listing import ListedFile, companion, listing
from lakefeed.tables.log.log import Log
from lakefeed.tables.log.removals import removal_sources
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
_TOMBSTONES = f"{TOMBSTONES_FOLDER}/"
_CLOCK_JUMP = 60.0
"""Seconds by which the machine's clock is ahead of the caller's when it was set forward."""


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
        log = Log(table.store, ((file.path.removeprefix(f"{LOG}/"), file.modified) for file in found.log))
        found.log.clear()
        needed, named = _needed(table, log, now, seconds)
        tombstones = [file for file in found.kept if file.path.startswith(_TOMBSTONES)]
        staged = [file for file in found.kept if not file.path.startswith(_TOMBSTONES)]
        # A version that is restored needs the tombstones that it names.
        heads = tombstone_heads(table.transactions)
        remembered = max(seconds, counted_for(table.store, heads, [file.path for file in tombstones]))
    old: list[ListedFile] = []
    young: list[ListedFile] = []
    for files, retained, unnamed in (
        ([*found.data, *found.vectors, *staged], seconds, max(seconds, _ORPHAN_AGE)),
        # Only entries name files of the change data feed; a batch may write them long before it commits.
        (found.changes, seconds, seconds + _ORPHAN_AGE),
        (tombstones, remembered, max(remembered, _ORPHAN_AGE)),
    ):
        for file in files:
            if file.path not in needed:
                age = now - file.modified / 1000
                (old if age > (retained if file.path in named else unnamed) else young).append(file)
    return VacuumPlan(
        table.version,
        seconds,
        tuple(old),
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
        needed = _needed_since(table, plan)
    files = [file for file in plan.files if file.path not in needed]
    before = live + Extent(len(files), sum(file.size for file in files))
    if not files:
        return Report("vacuum", before, live)
    info = {**commit_info, "files": len(files), "bytes": before.bytes - live.bytes, "retain": plan.retain}
    made = record(table, info)
    with store_errors(table.path):
        if local_folder(table.store) is not None:
            # Before the files: a later vacuum would not look for them.
            delete_files(table.store, (companion(file.path) for file in files))
        delete_files(table.store, (file.path for file in files), on_file)
    return Report("vacuum", before, live, made)


def _needed(table: LakeTable, log: Log, now: float, retain: float) -> tuple[set[str], set[str]]:
    """Paths that a version within the retention has, and all paths that were read from the log.

    A file that was in the table at any moment since then is in the newest version, or a later entry of the
    log removes it: so no old version has to be loaded.
    """
    since = int((now - retain) * 1000)
    # Checkpoints are written by the machine's clock, and forget too much when it is set forward.
    ahead = time.time() - now
    kept = retention(table.properties, DELETED_FILES) - (ahead if ahead > _CLOCK_JUMP else 0.0)
    # Files of the last day that the log does not name may belong to a running batch.
    sources = removal_sources(log, kept, int((now - max(retain, _ORPHAN_AGE)) * 1000))
    needed = set(stored_paths(data_files(table)))
    named = set(needed)
    for version in sources.checkpoints:
        removed = log.removed(version)
        needed |= {path for path, at in removed.items() if at >= since}
        named |= removed.keys()
    for entry in parallel_map(table.store, log.entry, sources.entries):
        paths = set(stored_paths((*entry.adds, *entry.removes, *entry.changes)))
        named |= paths
        if entry.timestamp >= since:
            needed |= paths
        needed |= set(stored_paths(file for file in entry.removes if file.modified >= since))
    return needed | referenced(table.store, tombstone_heads(table.transactions), since / 1000), named


def _needed_since(table: LakeTable, plan: VacuumPlan) -> set[str]:
    """Paths that versions since the plan name: a restore may have brought files back."""
    versions = range(plan.version + 1, table.version + 1)
    needed: set[str] = referenced(table.store, tombstone_heads(table.transactions))
    try:
        for entry in parallel_map(table.store, lambda version: read_entry(table.store, version), versions):
            needed |= set(stored_paths((*entry.adds, *entry.removes, *entry.changes)))
    except FileNotFoundError:
        # The log was cleaned past the plan.
        return needed | _needed(table, table.log(), time.time(), plan.retain)[0]
    return needed


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
