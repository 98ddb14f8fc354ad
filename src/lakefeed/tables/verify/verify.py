"""Verification of one table: its log is read version by version, and what does not add up is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakefeed.tables.log.data_file import DataFile, row_count
from lakefeed.tables.log.entry import DamagedEntry, Entry
from lakefeed.tables.log.log import Log, Snapshot
from lakefeed.tables.positions import named_partition
from lakefeed.tables.table import commit_info_of
from lakefeed.tables.verify.chain import Chain, Describe
from lakefeed.tables.verify.changes import change_problems, events_left, is_keyed
from lakefeed.tables.verify.files import check_files
from lakefeed.tables.verify.finding import Finding
from lakefeed.tables.verify.refreshes import check_refresh
from lakefeed.tables.verify.strangers import NOBODY, Expected, told_of_stranger
from lakefeed.tables.write.mode import FORMER_KEYS_KIND
from lakefeed.text import counted, first_line, listed

_APPENDS = ("rows", "position", "replay", "dead_letters")
"""Kinds of commits that add as many rows as their commit info says, and remove none."""

_OF_DEAD_LETTERS = ("replayed", "reloaded", "discard", "returned")
"""Kinds of commits that take dead letters away, or bring them back."""

_ABOUT_ROWS = ("count", "foreign", "restore")
"""Kinds of findings about rows that are there: void when all rows are replaced."""


@dataclass
class VerifiedLog:
    """What the log of one table shows, and what could not be checked.

    `first` is the first version that was checked: after a clean-up of the log, that is not 0.
    """

    first: int = 0
    version: int = -1
    rows: int | None = None
    files: int = 0
    chains: dict[str, Chain] = field(default_factory=dict)
    """By application id."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    complete: bool = True
    """Whether everything that is still there could be counted and looked at."""
    untouched: bool = True
    """Whether nothing but runs has changed the table: no rewind, no replay, no discard, no stranger."""
    created: int | None = None
    """When the table was made, in milliseconds; None where the log no longer says."""
    dead_lettered: dict[str, int] = field(default_factory=dict)
    """Of dead letters: when the first came, by application id."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    missing: set[str] = field(default_factory=set)
    """Files of the newest version that are not there."""

    @property
    def present(self) -> list[DataFile]:
        """Files of the newest version that can be read."""
        return [file for file in self.snapshot.files.values() if file.path not in self.missing]


def verify_log(
    log: Log,
    *,
    letters: bool = False,
    shared: frozenset[str] = frozenset(),
    expected: Expected = NOBODY,
    words: Callable[[str], Describe] = lambda name: lambda offset: None,
) -> VerifiedLog:
    """Compare a log with its files; in `shared` sources, several events may have one offset.

    `words` gives words for the offsets of a partition, by the name that its position has in the log.
    """
    walk = _Walk(log, letters, shared, expected, words)
    walk.run()
    check_files(log, walk.verified)
    return walk.verified


@dataclass
class _Walk:
    """One way through a log, from the oldest version that it can rebuild to the newest."""

    _log: Log
    _letters: bool
    _shared: frozenset[str]
    _expected: Expected
    _words: Callable[[str], Describe]
    verified: VerifiedLog = field(default_factory=VerifiedLog)
    _uncounted: list[int] = field(default_factory=list)
    """Versions that changed rows and do not say how many."""
    _follows: dict[int, int] = field(default_factory=dict)
    """The version whose rows a rewind continued from; elsewhere it is the one before."""
    _replaced: set[int] = field(default_factory=set)
    """Versions that replaced all rows."""

    def run(self) -> None:
        verified = self.verified
        holes = self._log.holes
        if holes:
            text = f"{counted(len(holes), 'version')} missing in the log, the first is {holes[0]}"
            verified.findings.append(Finding("log", text, holes[0]))
        try:
            state = self._log.beginning()
        except (ValueError, OSError) as error:
            verified.findings.append(Finding("log", f"the checkpoint cannot be read: {first_line(error)}"))
            state = None
        if state is None:
            verified.unchecked.append("no version can be rebuilt from the log, so nothing else was checked")
            return
        verified.first = state.version + 1
        if state.version >= 0:
            verified.unchecked.append(
                f"the log begins with version {verified.first}: the history of the rows and positions of "
                f"version {state.version} is no longer known"
            )
        self._go_on(state)
        state = verified.snapshot
        self._forget_what_is_gone()
        verified.version, verified.rows, verified.files = state.version, state.rows, len(state.files)
        uncounted = self._uncounted
        if uncounted or verified.rows is None:
            verified.complete = False
            first = f"; the first such version is {uncounted[0]}" if uncounted else ""
            verified.unchecked.append(f"some files have no statistics, so rows could not be counted{first}")

    def _go_on(self, state: Snapshot) -> None:
        self.verified.snapshot = state
        self._begin_chains(state)
        for version in range(state.version + 1, self._log.newest + 1):
            try:
                entry = self._log.entry(version)
            except DamagedEntry as error:
                self._unreadable(version, error)
                return
            self._check(entry, state)
            state.apply(entry)

    def _forget_what_is_gone(self) -> None:
        """What was wrong with versions whose rows were rewound or replaced is wrong no more."""
        alive: set[int | None] = set()
        with_rows: set[int | None] = set()
        version, replaced = self.verified.snapshot.version, False
        while version >= self.verified.first:
            alive.add(version)
            if not replaced:
                with_rows.add(version)
            replaced = replaced or version in self._replaced
            version = self._follows.get(version, version - 1)
        self._uncounted = [version for version in self._uncounted if version in with_rows]
        self.verified.findings = [
            one
            for one in self.verified.findings
            if one.kind == "log" or one.version in (with_rows if one.kind in _ABOUT_ROWS else alive)
        ]

    def _unreadable(self, version: int, error: DamagedEntry) -> None:
        """Name a torn version, and go on behind it where a checkpoint allows it."""
        self.verified.findings.append(Finding("log", f"cannot be read: {error.reason[:120]}", version))
        later = self._log.beginning(version)
        if later is None:
            self.verified.unchecked.append(f"nothing from version {version} on could be checked")
            return
        self.verified.unchecked.append(f"versions {version} to {later.version} could not be checked")
        self._go_on(later)

    def _begin_chains(self, state: Snapshot) -> None:
        for name, last in state.transactions.items():
            if not self._letters and (partition := named_partition(name)):
                self.verified.chains[name] = Chain.begun(
                    partition, state.version, last + 1, self._words(name)
                )

    def _check(self, entry: Entry, state: Snapshot) -> None:
        try:
            commit_info = commit_info_of(entry.info)
        except ValueError:
            commit_info = {}
        kind = str(commit_info.get("kind", ""))
        at = entry.info.get("timestamp")
        if entry.version == 0:
            self.verified.created = at
        if self._letters and kind == "dead_letters" and at is not None:
            self.verified.dead_lettered = (
                dict.fromkeys(commit_info.get("dead_letters") or (), at) | self.verified.dead_lettered
            )
        if kind in ("rewind", "replay", *_OF_DEAD_LETTERS):
            self.verified.untouched = False
        if kind == "refresh":
            for told in check_refresh(entry, commit_info, state.transactions):
                self._tell(told)
        if not self._letters:
            self._check_positions(entry, commit_info, kind)
        self._check_counts(entry, state, commit_info, kind)

    def _check_positions(self, entry: Entry, commit_info: Mapping[str, Any], kind: str) -> None:
        verified, version = self.verified, entry.version
        if kind == "rewind":
            self._follow_rewind(entry, commit_info)
            return
        if kind == "rebuild":
            self._follow_rebuild(entry, commit_info)
            return
        head = f"{commit_info.get('pipeline')}/{commit_info.get('source')}/"
        lost: Mapping[str, list[int]] = commit_info.get("lost") or {}
        jumps = {**(commit_info.get("adopted") or {}), **lost}
        ranges: Mapping[str, list[int]] = commit_info.get("ranges") or {}
        for partition, span in ranges.items():
            name = head + partition
            shown = named_partition(name) or name
            chain = verified.chains.setdefault(name, Chain.begun(shown, version, span[0], self._words(name)))
            shared = commit_info.get("source") in self._shared
            verified.findings += chain.read_range(version, span, jumps.get(partition), shared=shared)
            if partition in lost:
                told = chain.told_loss(*lost[partition])
                verified.notes.append(f"version {version}: {shown}: {told}")
        for name, last in entry.transactions.items():
            known = verified.chains.get(name)
            if known is not None:
                verified.findings += known.set_position(version, last + 1)
            elif begun := named_partition(name):
                verified.chains[name] = Chain.begun(begun, version, last + 1, self._words(name))

    def _follow_rewind(self, entry: Entry, commit_info: Mapping[str, Any]) -> None:
        """What came after the version that is back is gone."""
        target = int(commit_info.get("to", -1))
        verified = self.verified
        self._follows[entry.version] = target
        for name, chain in verified.chains.items():
            at = entry.transactions.get(name)
            chain.go_back(entry.version, target, chain.next if at is None else at + 1)
        verified.notes.append(f"version {entry.version}: rewound to version {target}")

    def _follow_rebuild(self, entry: Entry, commit_info: Mapping[str, Any]) -> None:
        """All rows were made anew from the ranges that the commit says."""
        verified, version = self.verified, entry.version
        for partition, (first, end, read, letters) in (commit_info.get("chains") or {}).items():
            name = f"{commit_info.get('pipeline')}/{partition}"
            chain = Chain.begun(partition, version, first, self._words(name))
            verified.findings += chain.read_range(version, [first, end, read, letters], None, shared=True)
            if entry.transactions.get(name, end - 1) != end - 1:
                verified.findings += chain.set_position(version, entry.transactions[name] + 1)
            verified.chains[name] = chain
        # What a source had replaced or lost by then was not read.
        verified.created = commit_info.get("begun", verified.created)
        verified.notes.append(f"version {version}: rebuilt from the beginning")

    def _check_counts(self, entry: Entry, state: Snapshot, commit_info: Mapping[str, Any], kind: str) -> None:
        removes = {file.path for file in entry.removes}
        gone = [state.files[path] for path in removes if path in state.files]
        came = [file for file in entry.adds if file.path not in state.files or file.path in removes]
        self._check_removed_once(entry, state)
        added, removed = row_count(came), row_count(gone)
        if kind == "rebuild" and added is not None:
            self._check_overwrite(entry, commit_info, added, removed, len(state.files) - len(gone))
            return
        if is_keyed(commit_info):
            marked = any(file.path in state.files for file in came)
            left = None if kind in ("replay", FORMER_KEYS_KIND) else events_left(commit_info)
            for problem in change_problems(commit_info, left, None if marked else added):
                self._wrong(entry, problem)
            return
        if kind in ("overwrite", "refresh") and added is not None:
            self._check_overwrite(entry, commit_info, added, removed, len(state.files) - len(gone))
            return
        if added is None or removed is None:
            self._uncounted.append(entry.version)
            return
        if kind in _APPENDS and "reloaded" in commit_info:
            self._check_reload(entry, commit_info, added, removed)
        elif kind in _APPENDS:
            if gone:
                self._wrong(entry, f"a commit that only adds has removed {counted(len(gone), 'file')}")
            self._check_added(entry, commit_info, kind, added)
        elif not entry.data_change:
            if (came or gone) and added != removed:
                self._wrong(entry, f"{_operation(entry)} made {added:,} rows out of {removed:,}")
        elif kind == "rewind" or (kind == "create" and not (came or gone)):
            return
        elif entry.info.get("operation") == "RESTORE":
            self._check_restore(entry, commit_info, added, removed)
        elif commit_info:
            self._check_removal(entry, commit_info, kind, added, removed)
        else:
            self._name_stranger(entry, added, removed)

    def _check_overwrite(
        self,
        entry: Entry,
        commit_info: Mapping[str, Any],
        added: int,
        removed: int | None,
        files_left: int,
    ) -> None:
        """All rows of before are gone, as many as the commit says."""
        self._replaced.add(entry.version)
        reported = (commit_info.get("removed") or {}).get("rows")
        if reported is not None and removed is not None and reported != removed:
            self._wrong(entry, f"the commit reports {reported:,} removed rows, it removed {removed:,}")
        if files_left:
            self._wrong(entry, f"it replaces all rows, and {counted(files_left, 'file')} of before are left")
        self._check_added(entry, commit_info, "rows" if commit_info.get("ranges") else "refresh", added)

    def _check_reload(self, entry: Entry, commit_info: Mapping[str, Any], added: int, removed: int) -> None:
        """As many rows have gone as the commit says; others beside them were written again as they were."""
        came, went = commit_info.get("rows", 0), commit_info["reloaded"]["rows"]
        if added - removed != came - went:
            self._wrong(
                entry,
                f"the commit reports {came:,} rows in place of {went:,}, its files have {added:,} in place "
                f"of {removed:,}",
            )
        self._check_added(entry, commit_info, "rows", came)
        files = listed(commit_info["reloaded"]["files"])
        self.verified.notes.append(
            f"version {entry.version}: {counted(went, 'row')} of {files} replaced by what the file held then"
        )

    def _check_added(self, entry: Entry, commit_info: Mapping[str, Any], kind: str, added: int) -> None:
        """The rows are as many as the commit says, and as many as the events that it has read allow."""
        reported = commit_info.get("rows")
        if reported is not None and reported != added:
            self._wrong(entry, f"the commit reports {reported:,} rows, its files have {added:,}")
        # In a table of a route, events that are not its rows are rows of the others.
        if kind == "rows" and reported is not None and not commit_info.get("routed"):
            ranges = list((commit_info.get("ranges") or {}).values())
            taken = commit_info.get("taken")
            if events_left(commit_info) != (reported if taken is None else taken):
                read, letters = (sum(span[at] for span in ranges) for at in (2, 3))
                self._wrong(
                    entry,
                    f"{read:,} events read and {letters:,} dead letters do not add up to "
                    + (f"{reported:,} rows" if taken is None else f"{taken:,} events that `python` took"),
                )

    def _check_restore(self, entry: Entry, commit_info: Mapping[str, Any], added: int, removed: int) -> None:
        self.verified.untouched = False
        target = (entry.info.get("operationParameters") or {}).get("version")
        if target is None or not str(target).lstrip("-").isdigit():
            self._name_stranger(entry, added, removed)
            return
        for chain in self.verified.chains.values():
            if not commit_info.get("ranges"):
                self.verified.findings += chain.missing_after_restore(entry.version, int(target))
        self.verified.notes.append(f"version {entry.version}: restored to version {target}")

    def _check_removal(
        self, entry: Entry, commit_info: Mapping[str, Any], kind: str, added: int, removed: int
    ) -> None:
        """Letters that were replayed or discarded, or whatever else Lakefeed has done with a purpose."""
        if kind in _OF_DEAD_LETTERS:
            reported, real = int(commit_info.get("dead_letters", 0)), abs(removed - added)
            if reported != real:
                self._wrong(
                    entry, f"the commit reports {reported:,} dead letters ({kind}), it moved {real:,}"
                )
            return
        if commit_info.get("ranges"):
            # It reads events and changes rows with them: a merge has its own arithmetic.
            return
        self.verified.untouched = False
        self.verified.notes.append(
            f"version {entry.version}: {kind or _operation(entry)}: {counted(added, 'row')} added, "
            f"{removed:,} removed"
        )

    def _name_stranger(self, entry: Entry, added: int, removed: int) -> None:
        self.verified.untouched = False
        self._tell(told_of_stranger(entry, added, removed, self._expected))

    def _tell(self, told: Finding | str) -> None:
        found: list[Any] = self.verified.findings if isinstance(told, Finding) else self.verified.notes
        found.append(told)

    def _check_removed_once(self, entry: Entry, state: Snapshot) -> None:
        unknown = [file.path for file in entry.removes if file.path not in state.files]
        if unknown and entry.adds:
            text = f"it replaces {unknown[0]}, which the table does not hold: rows may be there twice"
            self._wrong(entry, text)

    def _wrong(self, entry: Entry, text: str) -> None:
        self.verified.findings.append(Finding("count", text, entry.version))


def _operation(entry: Entry) -> str:
    return str(entry.info.get("operation") or "a commit without a name")
