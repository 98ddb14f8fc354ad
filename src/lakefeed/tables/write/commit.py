"""One commit of a table, exactly once: its positions, its fence, its retries and its lost answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lakefeed.backoff import backoff
from lakefeed.errors import BatchFailed, Fenced, LakefeedError, StoreUnavailable
from lakefeed.stores import drop_files, local_folder, store_errors
from lakefeed.tables.data_files import named_files
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.entry import read_entry
from lakefeed.tables.operations.checkpoint import checkpoint_when_due
from lakefeed.tables.positions import tombstone_heads
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.tables.write.entry import try_entry
from lakefeed.tables.write.mode import Change, NewEntry, WriteMode

_FIRST_WAIT = 0.1
_MOST_OVERTAKEN = 15
"""How often others may be faster before that counts as a failure."""
_MOST_PASSED = 500
"""How often an entry is tried again as it is, because what others have written does not matter to it."""


@dataclass(frozen=True)
class Landed:
    """A commit that is in the log."""

    version: int
    entry: NewEntry


def commit(
    table: LakeTable,
    change: Change,
    mode: WriteMode,
    *,
    retries: int,
    on_retry: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Landed:
    """Commit the change as the mode says. Raises Fenced when another instance was faster.

    A commit whose answer is lost is looked up by its token before it is tried again, so it never lands twice.
    An error says with `untried` whether the files of the change may be deleted.
    """
    # Only modes with keys have them.
    before = getattr(mode, "before", None) if change.former_keys else None
    for earlier, by_former_keys in before(change) if before else ():
        commit(table, earlier, by_former_keys, retries=retries, on_retry=on_retry, sleep=sleep)
    effort = _Effort(table, change, mode, change.shape or table.shape)
    try:
        landed = effort.run(retries, on_retry, sleep)
    except LakefeedError as error:
        error.untried = not effort.unsure
        raise
    mode.landed(landed.entry)
    drop_files(table.store, landed.entry.used)
    return landed


@dataclass
class _Effort:
    """The tries of one commit."""

    table: LakeTable
    change: Change
    mode: WriteMode
    shape: Shape
    unsure: bool = False
    """Whether a commit was tried that was not certainly refused."""
    blind: bool = False
    """Whether versions were passed whose entries nobody has looked at."""

    def run(self, retries: int, on_retry: Callable[[], None], sleep: Callable[[float], None]) -> Landed:
        self.check_files()
        attempt = overtaken = passed = 0
        entry: NewEntry | None = None
        while True:
            before_check = self.table.next_version
            self.check()
            if entry is not None and self.table.next_version != before_check:
                # Versions have come that the entry was not compared with.
                drop_files(self.table.store, entry.made)
                entry = None
            entry = entry or self.entry()
            before, self.unsure = self.unsure, True
            tried = self.table.next_version
            failure = try_entry(self.table, entry, self.change.token)
            refused = isinstance(failure, FileExistsError)
            if refused and local_folder(self.table.store) is not None:
                self.unsure = before
            version = self.find(entry)
            # A store may answer 409 while a request of ours still runs: only an entry that is there refuses.
            refused = refused and self.table.next_version > tried
            if refused and version is None:
                # A store may have told that of this very entry, whose first answer was lost: not any more.
                self.unsure = before
                if passed < _MOST_PASSED and self.passes(entry, tried):
                    passed += 1
                    continue
                drop_files(self.table.store, entry.made)
            if version is not None:
                checkpoint_when_due(self.table, version)
                return Landed(version, entry)
            entry = None
            if refused and overtaken < _MOST_OVERTAKEN:
                # Others are writing, which is no trouble: the next version may be ours.
                overtaken += 1
                continue
            attempt += 1
            if attempt > retries:
                break
            on_retry()
            sleep(backoff(attempt, _FIRST_WAIT))
        # Another instance tells more than a store that is away.
        check_fence(self.table, self.change.expected)
        raise StoreUnavailable(
            f"{self.table.path}: the commit failed {retries + 1} times, last with: "
            f"{_reason(self.table, failure)}"
        ) from failure

    def entry(self) -> NewEntry:
        """What the mode makes of the change, with the numbers that it increments."""
        entry, held = self.mode.entry(self.table, self.change), self.table.transactions
        counted = {name: max(held.get(name, 0), at) + 1 for name, at in self.change.counted.items()}
        return replace(entry, transactions={**entry.transactions, **counted}) if counted else entry

    def passes(self, entry: NewEntry, since: int) -> bool:
        """Whether an entry holds behind all versions since that one, as it is.

        It does if others have left alone its files, its keys and the tombstones: where they have committed
        positions, rows of other keys, or files with the rows of others.
        """
        if entry.meets is None:
            return False
        own = {file.path for file in (*entry.removed, *(file for file, _ in entry.marked))}
        held, expected = self.table.transactions, self.change.expected
        if any(held.get(name) != at for name, at in expected.items()):
            return False
        added: list[DataFile] = []
        for version in range(since, self.table.next_version):
            with store_errors(self.table.path):
                try:
                    other = read_entry(self.table.store, version)
                except FileNotFoundError:
                    return False
            removes = {file.path for file in other.removes}
            if other.reshapes or tombstone_heads(other.transactions) or own & removes:
                return False
            if any(file.data_change for file in other.removes):
                return False
            added += [file for file in other.adds if file.data_change]
        return not added or not entry.meets(named_files(self.table, added))

    def check_files(self) -> None:
        """Raise unless every file is where the table is, as it was written.

        An object store has confirmed each when it was uploaded.
        """
        folder = local_folder(self.table.store)
        for file in self.change.files if folder else ():
            assert folder is not None
            try:
                found: int | str = (folder / file.path).stat().st_size
            except FileNotFoundError:
                found = "none"
            if found != file.size:
                raise BatchFailed(
                    f"{self.table.path}: {file.path} was written with {file.size} bytes, and {found} are "
                    "there. The batch runs again.\nWith workers on other machines, `shared_disk` is only for "
                    "paths that are the same disk on all of them."
                )

    def check(self) -> None:
        """Raise unless the table is still the one that the change was made for."""
        before = self.table.next_version
        if self.table.version >= self.table.next_version:
            # The files of a version are known whose positions could not be read, perhaps for another source.
            self.table.refresh()
        self.table.confirm()
        self.blind |= self.table.next_version != before
        if self.may_have_landed():
            raise self.unknown()
        check_fence(self.table, self.change.expected)
        # Without files, nothing of the change depends on what the table looks like.
        other = self.shape.difference(self.table.shape) if self.change.files else None
        if other:
            raise BatchFailed(
                f"{self.table.path} was changed by another writer while a batch was being written: {other}. "
                "The batch runs again."
            )

    def find(self, entry: NewEntry) -> int | None:
        """Refresh, and look for the commit among the versions that have come since."""
        before = self.table.next_version
        passed = self.table.refresh(grounded=True)
        for version, info in passed.items():
            if commit_info_of(info).get("commit") == self.change.token:
                return version
        self.blind |= self.table.next_version - before != len(passed)
        if not self.may_have_landed():
            return None
        names = {Path(uri).name for uri in self.table.delta.file_uris()}
        if all(Path(file.path).name in names for file in entry.added):
            return self.table.version
        raise self.unknown()

    def may_have_landed(self) -> bool:
        """Whether the positions are ours, and the entry that moved them may have been ours as well."""
        moved = self.change.transactions.items()
        reached = all(self.table.transactions.get(name) == to for name, to in moved)
        return self.unsure and self.blind and bool(moved) and reached

    def unknown(self) -> BatchFailed:
        return BatchFailed(
            f"{self.table.path}: the log was cleaned up before Lakefeed could check whether a commit "
            f"succeeded. The run continues at the positions in the table."
        )


def _reason(table: LakeTable, failure: Exception | None) -> str:
    # What was said to have landed, and was not there.
    return "it is not in the log" if failure is None else str(failure).removeprefix(f"{table.path}: ")


def check_fence(table: LakeTable, positions: Mapping[str, int | None]) -> None:
    """Raise Fenced unless the table, as it was read last, has these positions."""
    for name, expected in positions.items():
        found = table.transactions.get(name)
        if found != expected:
            raise Fenced(
                f"{table.path}: another instance of this pipeline has written {json.dumps(name)} "
                f"up to {found}, this one expected {expected}. This one stops; nothing was written twice.\n"
                "Find the other one, perhaps on another machine or with another `state`, and stop one of the "
                "two; giving one\nanother `name` would not help: it would write every event a second time."
            )
