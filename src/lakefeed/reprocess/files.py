"""Files of a source that are read again, beside their rows or in place of them, or that are forgotten."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.dead_letters.reconcile import count_former, former_dead_letters
from lakefeed.errors import DataLoss, RowsNotReplaced, UsageError
from lakefeed.events import OffsetRange, Reload
from lakefeed.handles.anew import commands_to_make_anew
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.reloading import reload_mode, reloads_of, unread_former
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reprocess.readable_again import refuse_unreadable_again
from lakefeed.sources import PARTITION
from lakefeed.sources.files.filter import FileFilter, ledgers
from lakefeed.sources.files.finding.listing import LISTED, Listing
from lakefeed.sources.files.known import FORGOTTEN, GONE, READ, REPLACED, WAITING
from lakefeed.sources.files.ledger import LEDGER, Ledger, found, replacing, with_state
from lakefeed.sources.files.offset import MOST_NUMBERS, file_number, file_start
from lakefeed.sources.files.source import FilesSource
from lakefeed.sources.files.waiting import WaitingFiles
from lakefeed.tables.positions import positions_of
from lakefeed.tables.write.reload import former_rows
from lakefeed.text import listed


@dataclass
class FilesPlan:
    """Files of one source that a command is about."""

    source: str
    paths: list[str] = field(default_factory=list)
    appended_to: list[str] = field(default_factory=list)
    """Tables in which the rows of a file would be a second time."""


@dataclass
class TableReload:
    """What of one table the files of a reload replace."""

    table: str
    rows: int
    dead_letters: int


@dataclass
class TableToMakeAnew:
    """A table that cannot replace the rows of the files, and why."""

    table: str
    why: str


@dataclass
class ReloadPlan:
    """Files of one source whose rows are replaced by what the files hold now."""

    source: str
    paths: list[str] = field(default_factory=list)
    tables: list[TableReload] = field(default_factory=list)
    anew: list[TableToMakeAnew] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    """What makes these tables anew, and those that they feed, in this order."""
    waiting: list[str] = field(default_factory=list)
    """Files that the next batch reads anyway, as they are now."""


def retry_or_forget(
    pipeline: Pipeline,
    source: str | None,
    paths: Sequence[str],
    *,
    forget: bool,
    who: str,
    reason: str = "",
    dry_run: bool = False,
) -> list[FilesPlan]:
    """Give files a new number, so that they are read again, or forget them. Raises UsageError for others."""
    plans = []
    chosen = {}
    for name, spec in ledgers(pipeline, source).items():
        ledger = Ledger(spec.ledger_location(pipeline.name, name))
        rows = _newest(ledger.rows, paths)
        if rows.num_rows:
            chosen[name] = (spec, ledger, rows)
            tables = [each for each, table in pipeline.tables_of(name).items() if table.mode == "append"]
            has_rows = _has_rows(pipeline, name, ledger, rows)
            plans.append(FilesPlan(name, rows["path"].to_pylist(), tables if has_rows else []))
    if not plans:
        raise _unknown(paths)
    for name, (spec, ledger, rows) in {} if dry_run else chosen.items():
        passed = _passed(pipeline, name)
        while parts := _noted(spec, ledger, rows, passed, forget=forget):
            if ledger.append(parts, _info(who, reason)):
                break
            rows = _newest(ledger.rows, paths)
    return plans


def reload(
    pipeline: Pipeline,
    source: str | None,
    paths: Sequence[str],
    *,
    who: str,
    reason: str = "",
    dry_run: bool = False,
) -> list[ReloadPlan]:
    """Have the next batch replace the rows of files by what they hold now.

    A table that cannot replace them stops until it is made anew: the plan has the commands. Raises UsageError
    for files that are not there, and RowsNotReplaced where nothing makes such a table anew: then none of them
    is reloaded.
    """
    tables = Tables(pipeline)
    tables.find_routed()
    found_any = False
    reloads = []
    for name, spec in ledgers(pipeline, source).items():
        ledger = Ledger(spec.ledger_location(pipeline.name, name))
        one = _FilesReload(tables, name, spec, ledger, paths)
        found_any |= one.is_meant
        reloads.append(one)
    if not found_any:
        raise _unknown(paths)
    for one in [] if dry_run else reloads:
        one.run(_info(who, reason))
    return [one.plan for one in reloads if one.is_meant]


class _FilesReload:
    """The reload of some files of one source: planned when it is made, noted in the ledger by `run`."""

    def __init__(
        self, tables: Tables, name: str, spec: FilesSource, ledger: Ledger, paths: Sequence[str]
    ) -> None:
        self._tables, self._name, self._spec, self._ledger = tables, name, spec, ledger
        self._paths = paths
        self._look()

    def _look(self) -> None:
        self.plan = ReloadPlan(self._name)
        known = _newest(self._ledger.rows, self._paths)
        self.is_meant = bool(known.num_rows)
        now = _present(self._spec, known)
        handles = self._handles()
        passed = max((at for _, at in handles), default=0)
        unread = pc.greater_equal(known["number"], file_number(passed))
        waits = pc.and_(unread, _are_same(known, now))
        self.plan.waiting = known["path"].filter(waits).to_pylist()
        self._known, self._now = (rows.filter(pc.invert(waits)) for rows in (known, now))
        self.plan.paths = self._known["path"].to_pylist()
        files = self._reloads()
        for handle, at in handles:
            try:
                self._add(handle, at, files)
            except RowsNotReplaced as error:
                self._add_anew(handle, error)
        names = [
            handle.id.table for handle, _ in handles if handle.name in {one.table for one in self.plan.anew}
        ]
        self.plan.commands = list(commands_to_make_anew(self._tables, names))

    def run(self, info: dict[str, str]) -> None:
        """Note it; what others have noted meanwhile is looked at first."""
        while self._known.num_rows:
            new, ended = replacing(self._known, self._now)
            if self._ledger.append([found(new, self._ledger.known.next_number), ended], info):
                return
            self._look()

    def _handles(self) -> list[tuple[TableHandle, int]]:
        """The tables of the source, and how far they have come."""
        own = self._tables.pipeline.tables_of(self._name)
        handles = [one for one in self._tables.handles.values() if one.id.table in own]
        return [(one, self._position(one)) for one in handles]

    def _position(self, handle: TableHandle) -> int:
        if handle.look() is None:
            return 0
        held = positions_of(handle.table.transactions, self._tables.pipeline.name, self._name)
        return held.get(PARTITION, 0)

    def _reloads(self) -> list[Reload]:
        """As a batch would say of them."""
        waiting, first = WaitingFiles(self._ledger), file_start(self._ledger.known.next_number)
        numbers = self._known["number"].to_pylist()
        return waiting.as_reloads(
            [(path, first, number) for path, number in zip(self.plan.paths, numbers, strict=True)],
            takes_away=self._spec.takes_away(),
        )

    def _add(self, handle: TableHandle, at: int, files: list[Reload]) -> None:
        span = OffsetRange(PARTITION, at, file_start(MOST_NUMBERS))
        own = self._tables, handle.id.table, self._name
        unread = [] if handle.id.key else unread_former(*own, span, files)
        waiting = count_former(self._tables, self._name, handle.id.table, unread)
        if reloads := reloads_of(self._tables, handle, self._name, span, files):
            reload_mode(self._tables, handle, reloads).check(handle.table.shape, handle.path)
            rows = sum(len(edit.gone) for edit in former_rows(handle.table, reloads))
            dead_letters = former_dead_letters(self._tables, handle, reloads) + waiting
            self.plan.tables.append(TableReload(handle.name, rows, dead_letters))
        elif waiting:
            self.plan.tables.append(TableReload(handle.name, 0, waiting))

    def _add_anew(self, handle: TableHandle, error: RowsNotReplaced) -> None:
        """Add a table that is made anew. Raises the error where its sources have lost events of it."""
        if not error.commands:
            raise error
        try:
            refuse_unreadable_again(self._tables.pipeline, handle, handle.table)
        except DataLoss as lost:
            by_hand = f"Nor can it be made anew: {lost}"
            raise RowsNotReplaced(error.problem, (), by_hand) from None
        self.plan.anew.append(TableToMakeAnew(handle.name, error.problem))


def _noted(spec: FilesSource, ledger: Ledger, rows: pa.Table, passed: int, *, forget: bool) -> list[pa.Table]:
    """What the ledger is to have; nothing where all files are read by the next batch anyway."""
    if forget:
        return [_forgotten(rows, passed)]
    # What lies there now is read: a file that was corrected would look like one that has changed.
    now = _present(spec, rows, instead=rows.select(LISTED.names))
    unread = pc.and_(pc.equal(rows["state"], WAITING), pc.greater_equal(rows["number"], file_number(passed)))
    again = pc.invert(pc.and_(unread, _are_same(rows, now)))
    # No table has rows of a file that waits, but there may be dead letters; a reload that waits goes on.
    replaces = pc.if_else(unread, rows["number"], pa.scalar(None, pa.int64()))
    new = now.append_column(LEDGER.field("replaces"), replaces).filter(again)
    ended = with_state(rows.filter(pc.and_(unread, again)), REPLACED)
    return [part for part in (found(new, ledger.known.next_number), ended) if part.num_rows]


def _forgotten(rows: pa.Table, passed: int) -> pa.Table:
    """Rows that end the numbers of files. Those that tables have passed keep that they were read.

    After a kill the ledger may not say so yet; without the time of reading, `verify` would take the records
    of the file for rows of nowhere.
    """
    was_read = pc.and_(pc.equal(rows["state"], WAITING), pc.less(rows["number"], file_number(passed)))
    now = pa.scalar(dt.datetime.now(dt.UTC), TIMESTAMP)
    read_at = pc.coalesce(rows["read_at"], pc.if_else(was_read, now, pa.scalar(None, TIMESTAMP)))
    return with_state(rows, FORGOTTEN, read_at=read_at.to_pylist())


def _passed(pipeline: Pipeline, source: str) -> int:
    """The furthest position of a table of a source."""
    tables = Tables(pipeline)
    tables.find_routed()
    own, name = pipeline.tables_of(source), pipeline.name
    handles = [one for one in tables.handles.values() if one.id.table in own and one.look() is not None]
    held = [positions_of(one.table.transactions, name, source).get(PARTITION, 0) for one in handles]
    return max(held, default=0)


def _are_same(known: pa.Table, now: pa.Table) -> pa.ChunkedArray:
    """Whether files are as the ledger has them."""
    same = pc.and_(pc.equal(known["size"], now["size"]), pc.equal(known["modified"], now["modified"]))
    return pc.and_(same, pc.fill_null(pc.equal(known["etag"], now["etag"]), True))


def _present(spec: FilesSource, known: pa.Table, instead: pa.Table | None = None) -> pa.Table:
    """Files as they are now, in the order of their rows in a ledger; what `instead` has of those not there.

    Raises UsageError for those that are not there, without it.
    """
    paths = known["path"].combine_chunks()
    listing = Listing(spec.scope, spec.storage, lambda files: pc.is_in(files["path"], paths).to_numpy())
    try:
        parts = [LISTED.empty_table(), *listing.everything().in_order()]
    except FileNotFoundError as error:
        raise UsageError(f"the folder {error} does not exist") from None
    there = pa.concat_tables(parts if instead is None else [*parts, instead.cast(LISTED)])
    at = pc.index_in(paths, there["path"].combine_chunks())
    if at.null_count:
        gone = paths.filter(at.is_null()).to_pylist()
        raise UsageError(
            f"there is no file {listed(gone)} any more, so nothing can be read in place of its rows.\n"
            "Bring it back; or take its rows out: lakefeed table delete"
        )
    return there.take(at)


def _has_rows(pipeline: Pipeline, source: str, ledger: Ledger, rows: pa.Table) -> bool:
    """Whether files may have rows in tables: some were read, with other records than dead letters.

    A file whose reload waits has those of its former numbers.
    """
    former = [span for number in rows["replaces"].to_pylist() for span in WaitingFiles(ledger).former(number)]
    if former and min(former)[0] < _passed(pipeline, source):
        return True
    read = rows.filter(pc.equal(rows["state"], READ))
    return bool(pc.any(pc.fill_null(pc.greater(read["rows"], read["dead_letters"]), True)).as_py())


def _info(who: str, reason: str) -> dict[str, str]:
    return {"by": who, **({"reason": reason} if reason else {})}


def _unknown(paths: Sequence[str]) -> UsageError:
    return UsageError(f"no file in the ledger is named {listed(paths)}; see: lakefeed files list FILE")


def _newest(rows: pa.Table, paths: Sequence[str]) -> pa.Table:
    """Of each path that is meant the row with the last number, in the order of the numbers."""
    rows = rows.filter(pc.invert(pc.is_in(rows["state"], value_set=pa.array(GONE))))
    meant = pa.concat_tables([FileFilter(name=path).chosen(rows) for path in paths])
    last = {path: at for at, path in enumerate(meant["path"].to_pylist())}
    return meant.take(pa.array(sorted(last.values()), pa.int64())).sort_by("number")
