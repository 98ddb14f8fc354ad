"""The ledger of a source of files: a Delta table that numbers every file in the order it was found.

A file has a row when it is found, and one more for whatever became of it since; of the rows of one number,
the one with the state that comes last in `STATES` counts, of several of these the one that was noted last,
and compaction keeps no row with an earlier state. Rows are appended under the fence of every other table: the
last number that the writer knows must be the last one there.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.errors import Conflict, Fenced, LakefeedError, TableError
from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.sources.files.known import (
    GONE,
    INDEXED,
    READ,
    REPLACED,
    SKIPPED,
    STATES,
    TAKEN_AWAY,
    UNREADABLE,
    WAITING,
    KnownFiles,
    Numbers,
    ranks,
)
from lakefeed.sources.files.moved import FilesElsewhere, MovedFiles
from lakefeed.sources.files.offset import MOST_NUMBERS, numbers_of
from lakefeed.sources.files.spelling import Spelling
from lakefeed.stores import open_store, store_errors
from lakefeed.tables.data_files import add_actions, data_files, open_data
from lakefeed.tables.file_rows import conformed, opened
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.operations import vacuum
from lakefeed.tables.positions import mark_id
from lakefeed.tables.rewrite.rewrite import rewrite
from lakefeed.tables.schema import add_columns, missing_columns
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change

LEDGER = pa.schema(
    [
        ("number", pa.int64()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modified", TIMESTAMP),
        ("etag", pa.string()),
        ("discovered_at", TIMESTAMP),
        ("state", pa.string()),
        ("rows", pa.int64()),
        ("dead_letters", pa.int64()),
        ("version", pa.int64()),
        ("read_at", TIMESTAMP),
        ("error", pa.string()),
        ("replaces", pa.int64()),
    ]
)

LEDGER_MARK = "ledger"
"""The mark in the logs of tables that holds the id of the ledger."""
_RETRIES = 5
_MANY_FILES = 100
"""Small files of a ledger from which on they are made one."""
_TIERS = (2**20, 64 * 2**20)
"""Sizes below which files are small, so that a large one is not written again for each hundred small ones."""
_PAGE = 1 << 15
"""Numbers whose rows are read together."""
_INDEXED_AT_A_TIME = 1 << 20
_PAGES = 4
"""Pages that stay in memory."""
_ROW_GROUP_BYTES = 8 * 2**20
_INDEXED = pa.schema([LEDGER.field(name) for name in INDEXED])
_NUMBERED = pa.schema([LEDGER.field(name) for name in ("number", "state")])


@dataclass(frozen=True)
class LedgerLocation:
    """Where a ledger is, and whose it is."""

    path: str
    storage: Mapping[str, str]
    pipeline: str
    source: str
    spelling: Spelling = field(default_factory=Spelling)
    sync: bool = True


class Ledger:
    """What is known of every file, the rows of few of them, and the way to append. Used by one thread."""

    def __init__(self, location: LedgerLocation) -> None:
        self._location = location
        self._store = open_store(location.path, location.storage)
        self._mark = mark_id(location.pipeline, location.source, "number")
        self._forgotten = mark_id(location.pipeline, location.source, "forgotten")
        self.table: LakeTable | None = None
        self.known = KnownFiles()
        self.elsewhere = FilesElsewhere(location.spelling.base)
        """The files that are not below the folder of the source."""
        self._files: set[str] = set()
        """The data files that `known` has."""
        self._pages: dict[int, pa.Table] = {}
        self._unwritten = LEDGER.empty_table()
        self._is_stale = False
        """Whether an append has failed, so that nobody knows whether its rows are there."""
        self.load()

    def load(self) -> None:
        """Read what is there."""
        location = self._location
        self.table = LakeTable.open(
            "files", location.path, location.storage, self._store, durable=location.sync
        )
        if self.table and self.table.shape.is_mapped:
            raise TableError(
                f"{location.path} has column mapping, which the ledger of a source may not have.\n"
                "Set delta.columnMapping.mode to none with the engine that set it."
            )
        self._read_all()

    @property
    def rows(self) -> pa.Table:
        """All rows that count, sorted by number: for commands, which may take their time and memory."""
        batches = self._read(data_files(self.table), LEDGER) if self.table else []
        return counting(pa.Table.from_batches(batches, LEDGER))

    @property
    def base(self) -> str:
        """The folder below which the source reads."""
        return self._location.spelling.base

    @property
    def id(self) -> str | None:
        """The id of the table; None while there is none."""
        return self.table.shape.table_id if self.table else None

    def create(self) -> None:
        """Make the table, unless it is there."""
        if self.table is not None:
            return
        location = self._location
        self.table = LakeTable.create(
            "files",
            location.path,
            location.storage,
            self._store,
            schema=LEDGER,
            partition_by=(),
            properties={},
            transactions={self._mark: 0},
            commit_info={"pipeline": location.pipeline, "source": location.source, "kind": "create"},
            durable=location.sync,
        )
        self.load()

    def refresh(self) -> bool:
        """Read what others have appended; False where there was nothing."""
        if self._is_stale:
            self.load()
            return True
        if self.table is None or not self.table.refresh():
            return False
        self._read_new()
        return True

    def rows_of(self, numbers: Numbers) -> pa.Table:
        """The rows that count of some numbers, sorted by number."""
        pages = np.unique(numbers // _PAGE).tolist()
        if len(pages) > _PAGES:
            found = list(self.scan(int(numbers.min()), int(numbers.max()) + 1))
            rows = counting(pa.concat_tables([pa.Table.from_batches(found, LEDGER), self._unwritten]))
        else:
            rows = pa.concat_tables([LEDGER.empty_table(), *map(self._page, pages)])
        return rows.filter(pc.is_in(rows["number"], value_set=pa.array(numbers))).combine_chunks()

    def scan(self, first: int = 0, end: int = MOST_NUMBERS) -> Iterator[pa.RecordBatch]:
        """All rows of numbers from `first` up to and without `end`, also those that do not count."""
        if self.table is None:
            return
        files = data_files(self.table, f"number >= {first} AND number < {end}")
        for rows in self._read(files, LEDGER, first, end):
            numbers = rows.column("number").to_numpy()
            yield rows.filter(pa.array((numbers >= first) & (numbers < end)))

    def _read(
        self, files: Iterable[DataFile], schema: pa.Schema, first: int = 0, end: int = MOST_NUMBERS
    ) -> Iterator[pa.RecordBatch]:
        """The row groups of some files that may have such numbers, in small parts."""
        for file in files:
            with store_errors(self._location.path), open_data(self._store, file.path) as stream:
                reader, _ = opened(stream, file.size)
                groups = _row_groups(reader, first, end)
                # Threads would read ahead, and hold what all of them read.
                for batch in reader.iter_batches(_PAGE, groups, schema.names, use_threads=False):
                    rows = conformed(batch, schema, file.partition)
                    yield self._location.spelling.resolved(rows) if "path" in schema.names else rows
            pa.default_memory_pool().release_unused()

    def first_modified(self, since: dt.datetime) -> int | None:
        """The lowest number of a file that was modified then or later."""
        found = []
        for rows in chain(self.scan(), self._unwritten.to_batches()):
            later = pc.greater_equal(rows.column("modified"), pa.scalar(since, TIMESTAMP))
            found.append(pc.min(rows.column("number").filter(later)).as_py())
        return min((number for number in found if number is not None), default=None)

    def append(self, parts: pa.Table | Iterable[pa.Table], more: Mapping[str, Any] | None = None) -> bool:
        """Append rows in one commit, with `more` in its commit info.

        False where somebody else was faster: then what is there has been read anew.
        """
        if self._is_stale:
            self.load()
            return False
        self.create()
        self._add_columns()
        assert self.table is not None
        held, before = self.table.transactions.get(self._mark), self.known.last
        if (held or 0) > before:
            raise TableError(
                f"the ledger {self._location.path} has lost rows: it was brought back to an older state.\n"
                "Restore its newest version: lakefeed table history and restore."
            )
        writer = self._writer()
        self._is_stale, count = True, 0
        try:
            for rows in [parts] if isinstance(parts, pa.Table) else parts:
                for batch in rows.to_batches():
                    writer.write(self._location.spelling.stored(batch))
                self._learn(rows)
                count += rows.num_rows
            files = writer.close()
        except BaseException:
            writer.abort()
            raise
        last = max(held or 0, self.known.last)
        change = Change(files, {self._mark: last}, {self._mark: before}, self._info("files", count, more))
        seen = self.table.version
        try:
            version = append(self.table, change, retries=_RETRIES)
        except Fenced:
            writer.abort()
            self.load()
            return False
        self._is_stale = False
        self._files |= {file.path for file in files}
        if version != seen + 1:
            # Somebody has told what became of other files: that moves no number, so it is no conflict.
            self._read_new()
        return True

    def _add_columns(self) -> None:
        """Give a ledger of an older release the columns that it lacks."""
        assert self.table is not None
        for _ in range(_RETRIES):
            lacking = missing_columns(self.table.schema, LEDGER)
            if not lacking or add_columns(self.table, lacking, self._info("alter", None)):
                return
        raise Conflict(f"the ledger {self._location.path}: other writers keep changing it; run it again.")

    def hold(self, parts: Iterable[pa.Table]) -> None:
        """Go on as if rows were appended: for those who only look. Of very many, not all can be asked for."""
        for rows in parts:
            self.known.add(rows)
            if self._unwritten.num_rows < _PAGES * _PAGE:
                self._unwritten = pa.concat_tables([self._unwritten, rows])
        self._pages.clear()

    def compact(self) -> None:
        """Make one file of many small ones: each append has left one. What fails is done the next time.

        Of rows of one number in them, only the one that counts stays.
        """
        if self.table is None or len(self._files) < _MANY_FILES:
            return
        for limit in _TIERS:
            small = [file for file in data_files(self.table) if file.size < limit]
            if len(small) >= _MANY_FILES:
                return self._rewrite(small, "compact", self._later_rows(small))

    @property
    def forgotten_until(self) -> int:
        """The newest time of a file that `forget` has taken out, in microseconds; 0 where there is none."""
        return (self.table.transactions.get(self._forgotten) or 0) if self.table else 0

    def forget(self, before: int, end: int) -> int:
        """Take out files that are gone, by what became of them or by the last listing; how many.

        Those with a number below `end` of which nothing was noted since `before`, in microseconds. The last
        number stays, by which the next one is known. Where a file comes back of which only a listing says
        that it is gone, nobody knows that it was read: `forgotten_until` is noted first.
        """
        first = self.known.first
        # Numbers come in the order of time: where the first are young, all are.
        likely = self.rows_of(self._first_gone(min(end, self.known.last)))
        if self.table is None or not (_noted_at(likely) < before).any():
            return 0
        old, newest = np.zeros(self.known.next_number - first, np.bool_), self.forgotten_until
        for batch in self._read(data_files(self.table), LEDGER):
            missing, gone = self._forgettable(batch, before, min(end, self.known.last))
            old[batch.column("number").to_numpy()[missing | gone] - first] = True
            rows = pa.Table.from_batches([batch.filter(pa.array(missing))])
            rows = rows.filter(pa.array(self.known.last_numbers(rows) == rows["number"].to_numpy()))
            newest = max(newest, pc.max(rows["modified"].cast(pa.int64())).as_py() or 0)
        if not old.any():
            return 0
        if newest > self.forgotten_until:
            held = self.table.transactions.get(self._forgotten)
            change = Change(
                (), {self._forgotten: newest}, {self._forgotten: held}, self._info("forget", None)
            )
            append(self.table, change, retries=_RETRIES)
        files = data_files(self.table)
        rows_left = (
            batch.filter(pa.array(~old[batch.column("number").to_numpy() - first]))
            for batch in self._read(files, LEDGER)
        )
        self._rewrite(files, "forget", rows_left)
        self._read_all()
        return int(np.count_nonzero(old))

    def relocate(self, moved: MovedFiles) -> None:
        """Write where some files are now, in one commit; after a conflict, nothing has changed."""
        if self.table is None:
            return
        first = self.known.first
        there = np.zeros(self.known.next_number - first, np.bool_)
        there[moved.then["number"].to_numpy() - first] = True
        files = data_files(self.table)
        others = (
            batch.filter(pa.array(~there[batch.column("number").to_numpy() - first]))
            for batch in self._read(files, LEDGER)
        )
        with suppress(Conflict):
            self._replace(files, "relocate", chain(others, moved.as_they_are().to_batches()))
        self._read_all()

    def _first_gone(self, end: int) -> Numbers:
        """The first numbers below `end` whose files are gone."""
        known, numbers = self.known, np.zeros(0, np.int64)
        for first in range(known.first, end, _INDEXED_AT_A_TIME):
            numbers = known.numbers_in(STATES, first, min(end, first + _INDEXED_AT_A_TIME))
            numbers = numbers[known.are_in((*GONE, *TAKEN_AWAY), numbers) | known.is_missing(numbers)]
            if len(numbers):
                break
        return numbers[:_PAGE]

    def _forgettable(
        self, rows: pa.RecordBatch, before: int, end: int
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which rows are old, and of files that no listing has any more, or that are gone by their state."""
        numbers, states = rows.column("number").to_numpy(), ranks(rows.column("state"))
        old = (states == self.known.ranks_of(numbers)) & (numbers < end) & (_noted_at(rows) < before)
        gone = self.known.are_in((*GONE, *TAKEN_AWAY), numbers)
        passed = self.known.are_in((SKIPPED, READ, UNREADABLE), numbers)
        return old & passed & self.known.is_missing(numbers), old & gone

    def _rewrite(self, old: Sequence[DataFile], kind: str, rows: Iterator[pa.RecordBatch]) -> None:
        """Replace files by others; what fails is left for the next time."""
        with suppress(LakefeedError):
            self._replace(old, kind, rows)
        self._read_new()

    def _replace(self, old: Sequence[DataFile], kind: str, rows: Iterator[pa.RecordBatch]) -> None:
        assert self.table is not None
        stored = (self._location.spelling.stored(batch) for batch in rows)
        rewrite(self.table, old, stored, self._writer(), self._info(kind, None), feed=())
        self._files -= {file.path for file in old}
        # What was replaced a week ago: nobody else tidies a ledger up.
        vacuum.run(self.table, vacuum.plan(self.table), self._info("vacuum", None))

    def _later_rows(self, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        """The rows of some files, but for those of which another one among them says what came later."""
        assert self.table is not None
        first = self.known.first
        last = np.zeros(self.known.next_number - first, np.uint8)
        for batch in self._read(files, _NUMBERED):
            np.maximum.at(last, batch.column("number").to_numpy() - first, ranks(batch.column("state")))
        for batch in self._read(files, LEDGER):
            at = batch.column("number").to_numpy() - first
            yield batch.filter(pa.array(ranks(batch.column("state")) == last[at]))

    def _read_all(self) -> None:
        """Learn everything anew."""
        self._pages.clear()
        self._files, self._is_stale = set(), False
        self.known = KnownFiles(1 if self.table is None else _lowest(self.table))
        self.elsewhere = FilesElsewhere(self._location.spelling.base)
        self._read_new()

    def _read_new(self) -> None:
        """Learn what is in files that were not there before; everything, where files have gone."""
        if self.table is None:
            return
        files = data_files(self.table)
        there = {file.path for file in files}
        if not self._files <= there:
            self._read_all()
            return
        for batch in self._read([file for file in files if file.path not in self._files], _INDEXED):
            self.known.add(batch)
            self.elsewhere.add(batch)
        self._files = there
        self._pages.clear()

    def _learn(self, rows: pa.Table) -> None:
        """Take rows that this ledger appends into what is in memory."""
        before = self.known.last
        self.known.add(rows)
        pages = rows["number"].to_numpy() // _PAGE
        for page in np.unique(pages).tolist():
            held = self._pages.get(page)
            if held is None and page * _PAGE <= before:
                continue
            new = rows.filter(pa.array(pages == page))
            self._keep(page, new if held is None else pa.concat_tables([held, new]))

    def _page(self, page: int) -> pa.Table:
        held = self._pages.pop(page, None)
        if held is None:
            first, end = page * _PAGE, (page + 1) * _PAGE
            more = pc.and_(
                pc.greater_equal(self._unwritten["number"], first), pc.less(self._unwritten["number"], end)
            )
            read = pa.Table.from_batches(self.scan(first, end), LEDGER)
            held = pa.concat_tables([read, self._unwritten.filter(more)])
        return self._keep(page, held)

    def _keep(self, page: int, rows: pa.Table) -> pa.Table:
        self._pages.pop(page, None)
        self._pages[page] = counting(rows)
        while len(self._pages) > _PAGES:
            del self._pages[next(iter(self._pages))]
        return self._pages[page]

    def _writer(self) -> TableWriter:
        target = FileTarget(LEDGER, sync=self._location.sync, row_group_bytes=_ROW_GROUP_BYTES)
        return TableWriter(self._store, target)

    def _info(self, kind: str, rows: int | None, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        info = {"pipeline": self._location.pipeline, "source": self._location.source, "kind": kind}
        return {**info, **({} if rows is None else {"rows": rows}), **(more or {})}


def _noted_at(rows: pa.Table | pa.RecordBatch) -> Numbers:
    """When it was noted last what became of each file, in microseconds."""
    times = pc.coalesce(rows.column("read_at"), rows.column("discovered_at")).cast(pa.int64())
    found: Numbers = times.to_numpy()
    return found


def _lowest(table: LakeTable) -> int:
    """The lowest number that a ledger has, by its statistics; 1 where they do not tell."""
    column = "min.number"
    actions = add_actions(table.delta, [column])
    known = column in actions.schema.names and not actions[column].null_count
    return (known and pc.min(actions[column]).as_py()) or 1


def _row_groups(reader: pq.ParquetFile, first: int, end: int) -> list[int]:
    """The row groups of a data file that may have such numbers."""
    column = reader.schema_arrow.get_field_index("number")
    found = []
    for at in range(reader.num_row_groups):
        told = reader.metadata.row_group(at).column(column).statistics
        if told is None or not told.has_min_max or (told.max >= first and told.min < end):
            found.append(at)
    return found


def counting(rows: pa.Table) -> pa.Table:
    """Of each number the row that counts, sorted by number."""
    numbers = rows["number"].to_numpy()
    if (np.diff(numbers) > 0).all():
        return rows
    # Of a file that was read again, what was noted last counts.
    order = np.lexsort((_noted_at(rows), ranks(rows["state"]), numbers))
    sorted_numbers = numbers[order]
    last = np.append(sorted_numbers[1:] != sorted_numbers[:-1], True)
    return rows.take(pa.array(order[last])).combine_chunks()


def found(files: pa.Table, first: int) -> pa.Table:
    """Rows for files that were found, numbered in their order."""
    sizes = files["size"].to_pylist()
    numbers, at = [], first
    for size in sizes:
        numbers.append(at)
        at += numbers_of(size)
    given = {name: files[name] for name in ("path", "size", "modified", "etag")}
    if "replaces" in files.column_names:
        given["replaces"] = files["replaces"]
    count = files.num_rows
    given["number"] = pa.array(numbers, pa.int64())
    given["discovered_at"] = pa.repeat(pa.scalar(dt.datetime.now(dt.UTC), TIMESTAMP), count)
    given["state"] = pa.repeat(WAITING, count)
    return _table(given, count)


def with_state(files: pa.Table, state: str | Sequence[str], **more: Any) -> pa.Table:
    """The same files in another state, and what else is known by now."""
    count = files.num_rows
    given = {name: files[name] for name in LEDGER.names}
    given["state"] = pa.repeat(state, count) if isinstance(state, str) else pa.array(state, pa.string())
    for name, values in more.items():
        given[name] = pa.array(values, LEDGER.field(name).type)
    return _table(given, count)


def replacing(known: pa.Table, now: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Files as they are now, to be numbered anew, and the rows that end their former numbers.

    The rows that a table made of a former number are replaced when it reads the new one. A number that was
    `skipped` has none, and passes on what it would have replaced itself.
    """
    has_rows = pc.not_equal(known["state"], SKIPPED)
    replaces = pc.if_else(has_rows, known["number"], known["replaces"])
    # By the time of reading, a number counts as one whose records are in tables.
    read_at = pc.coalesce(known["read_at"], pa.scalar(dt.datetime.now(dt.UTC), TIMESTAMP))
    ended = with_state(known, REPLACED, read_at=pc.if_else(has_rows, read_at, known["read_at"]).to_pylist())
    return now.append_column(LEDGER.field("replaces"), replaces), ended


def _table(given: Mapping[str, Any], count: int) -> pa.Table:
    columns = [given.get(field.name, pa.nulls(count, field.type)) for field in LEDGER]
    arrays = [one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in columns]
    return pa.Table.from_arrays(arrays, schema=LEDGER)


def ledger_mark(table_id: str) -> int:
    """The id of a ledger as a number of 63 bits."""
    return uuid.uuid5(uuid.NAMESPACE_URL, table_id).int >> 65
