"""Files as the driver sees them: found and numbered in the ledger, planned, and told what became of them."""

from __future__ import annotations

import datetime as dt
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.errors import (
    DataLoss,
    LakefeedError,
    SourceError,
)
from lakefeed.events import OffsetRange, Offsets, Outstanding, PartRead, Split
from lakefeed.sources import PARTITION, Allowance, Finding, SourceClient
from lakefeed.sources.files.after import After
from lakefeed.sources.files.discovery import ListedFiles, compare, in_order
from lakefeed.sources.files.finding.finder import Finder
from lakefeed.sources.files.ledger import (
    READ,
    REPLACED,
    SKIPPED,
    UNREADABLE,
    WAITING,
    Ledger,
    LedgerLocation,
    counting,
    found,
    next_number,
    with_state,
)
from lakefeed.sources.files.offset import MOST_NUMBERS, file_number, file_start
from lakefeed.sources.files.piece import FoundFile, Work
from lakefeed.sources.files.reading.opening import FileOpener, codec_of
from lakefeed.sources.files.reading.parquet import row_groups
from lakefeed.sources.files.source import FilesSource
from lakefeed.sources.files.waiting import FIRST_GUESS, WaitingFiles
from lakefeed.sources.source_errors import source_errors
from lakefeed.text import counted

_log = logging.getLogger("lakefeed")
_EXPANDS = 5
"""How many times larger a compressed file is thought to be, before it is read."""
_WORTH_CUTTING = 32 * 2**20
"""Bytes of a Parquet file from which on its footer is read, to share out its rows."""
_MARK = "ledger"
_UNCOUNTED = PartRead()


class FilesClient(SourceClient):
    """Finds files and plans batches of whole ones. Only a run writes to the ledger: see `begin`."""

    def __init__(self, source: FilesSource, name: str, location: LedgerLocation) -> None:
        self._source = source
        self._whose = f"source {name}"
        self._scope = source.scope
        self._runs = False
        self._start: Offsets | None = None
        self._unexamined: pa.Table | None = None
        """What was listed before the positions of the tables were known."""
        self._per_record = FIRST_GUESS
        self._noted: dict[int, PartRead] = {}
        self._read_to = file_start(MOST_NUMBERS)
        """The lowest position of a table: what every one of them has read."""
        self._reached = 0
        """The highest position of a table: behind it, nobody has read anything."""
        self._ignored: set[int] = set()
        """Files that have changed since some table has read them, and that others still have to read."""
        self._told_taken = False
        with self._errors():
            self._finder = Finder(source, self._whose)
            self._opener = FileOpener(self._scope.base, source.storage)
            self._ledger = Ledger(location)
        self._acknowledged = 0
        self._after = After(source, self._opener) if source.takes_away() else None
        self._take(self._ledger.rows)

    def begin(self) -> None:
        """From now on, what is found is written into the ledger."""
        self._runs = True
        with self._errors():
            self._ledger.create()
            self._ledger.compact()
            self._take(self._ledger.rows)
            self._finder.begin()

    def start(self) -> Offsets:
        """The same for every table that begins in this run."""
        if self._start is None:
            self._discover()
            first = self._first_number()
            self._start = {PARTITION: file_start(first)}
            if not self._reached:
                self._skip(first)
            self._read_to = min(self._read_to, self._start[PARTITION])
        return dict(self._start)

    def latest(self) -> Offsets:
        """Behind the last file that is known; looks for more now and then."""
        if self._unexamined is not None:
            self._discover(self._unexamined, changes=True)
        elif self._finder.is_due():
            # In this order: a file that is listed and then taken away would look like another one.
            self._tell_ledger()
            self._take_away()
            self._discover(changes=True)
        return {PARTITION: file_start(self._next_number)}

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Refuse to go on with another ledger than before, or with one that does not know what was read."""
        at = positions.get(PARTITION, file_start(1))
        if not self._finder.has_listed:
            self._discover()
        known, path = self.marks().get(_MARK), self._source.ledger
        if file_number(at) > 1 and (known is None or marks.get(_MARK, known) != known):
            what = "is gone" if known is None else "is another one than before"
            raise DataLoss(
                f"{self._whose}: the ledger of files, {path}, {what}: nobody knows which files were read.\n"
                "Bring it back, or name the right one in `ledger`. To read all files again, drop the tables "
                "that they are in."
            )
        if at > file_start(self._next_number):
            raise DataLoss(
                f"{self._whose}: {self._source.describe_offset(at)} comes next, but the ledger {path} ends "
                f"before file {self._next_number:,}: it was brought back to an older state.\n"
                "Restore its newest version: lakefeed table history and restore."
            )
        self._read_to, self._reached = min(self._read_to, at), max(self._reached, at)
        return {PARTITION: at}

    def lost_between(self, position: Offsets, ends: Offsets) -> str | None:
        """Files that `after` has deleted or moved."""
        gone = self._waiting.taken_away(position[PARTITION], ends[PARTITION])
        return f"`after` has deleted or moved {counted(gone, 'file')} of them" if gone else None

    def marks(self) -> dict[str, int]:
        """The id of the ledger as a number."""
        return {} if self._ledger.id is None else {_MARK: _number(self._ledger.id)}

    def rows_between(self, position: Offsets, ends: Offsets) -> dict[str, int]:
        """By the size of the files, and the size that records have had."""
        return {
            name: self._waiting.rows_guessed(at, ends.get(name, at), self._per_record)
            for name, at in position.items()
        }

    def outstanding(self, position: Offsets, ends: Offsets) -> Outstanding:
        """The files that wait, and their bytes as they are read; and those that are too young for that."""
        at, end, young = position.get(PARTITION, 0), ends.get(PARTITION, 0), self._finder.young
        return Outstanding(
            self._waiting.files_between(at, end),
            self._waiting.bytes_between(at, end),
            young=young,
            settle=self._source.settle if young else None,
        )

    def rows_read(self, position: Offsets, ends: Offsets) -> dict[str, int] | None:
        """By the ledger, where it has counted all of these files."""
        counts = {name: self._waiting.counts(at, ends[name]) for name, at in position.items()}
        if any(column.null_count for column in counts.values()):
            return None
        return {name: pc.sum(column).as_py() or 0 for name, column in counts.items()}

    def rows_missed(self, position: Offsets, ends: Offsets, made: int) -> dict[str, int]:
        """Those of files that `after` had taken away by then, or that had another content."""
        return {name: self._waiting.missed(at, ends[name], made * 1000) for name, at in position.items()}

    def next_end(self, position: Offsets, ends: Offsets, allowed: Allowance) -> Offsets:
        """Behind as many whole files as fit, and one at least."""
        if self._unexamined is not None:
            # A run that ends by itself asks for the latest offsets once only.
            self._discover(self._unexamined, changes=True)
        at, end, most = position[PARTITION], ends[PARTITION], self._source.max_files
        return {PARTITION: self._waiting.next_end(at, end, allowed, self._per_record, most)}

    def splits(self, ranges: Sequence[OffsetRange], cores: int) -> list[Split]:
        """Tasks of about equal size; a large file of plain lines is read by several."""
        gone = sum(self._waiting.taken_away(span.start, span.end) for span in ranges)
        if gone and not self._told_taken:
            self._told_taken = True
            _log.warning(
                "%s: %s that `after` has deleted or moved cannot be read by a table that begins before them",
                self._whose,
                counted(gone, "file"),
            )
        return [task for span in ranges for task in self._waiting.splits(span, cores, self._weigh)]

    def age(self, position: Offsets) -> float | None:
        """Since the first file was found that has not been read."""
        at = position.get(PARTITION, 0)
        oldest = self._waiting.oldest(at, file_start(self._next_number))
        return None if oldest is None else max(0.0, time.time() - oldest)

    def note(self, parts: Mapping[str, PartRead]) -> None:
        """Keep what was counted for the ledger, and learn how large records are."""
        read = {int(number): part for number, part in parts.items()}
        self._noted |= read
        size = sum(self._waiting.bytes_between(file_start(at), file_start(at + 1)) for at in read)
        records = sum(part.records for part in read.values())
        if records and size:
            self._per_record = max(1.0, size / records)

    def acknowledge(self, positions: Offsets) -> None:
        """Files before the position are read, whichever tables they are for: the ledger is told soon."""
        if PARTITION in positions:
            self._read_to = self._acknowledged = positions[PARTITION]
            self._reached = max(self._reached, self._acknowledged)

    def findings(self) -> list[Finding]:
        """Whether the queue answers that `notify` names."""
        return self._finder.findings()

    @property
    def remark(self) -> str:
        """Why the queue does not tell of files."""
        return self._finder.remark

    def close(self) -> None:
        """Tell the ledger what became of the files; what it is not told, the tables know."""
        if self._runs:
            with suppress(LakefeedError):
                self._tell_ledger()
                while self._take_away():
                    pass

    def _take(self, rows: pa.Table) -> None:
        """Plan with these rows from now on."""
        self._rows = rows
        self._waiting = WaitingFiles(rows, _expansion)
        self._next_number = next_number(rows)

    def _discover(self, files: pa.Table | None = None, *, changes: bool = False) -> None:
        """Look for files, and give those numbers that the ledger does not know.

        What has changed is examined when it is known what the tables have read: by `latest`.
        """
        with self._errors():
            if self._runs and self._ledger.refresh():
                self._take(self._ledger.rows)
            if files is None:
                # Without changes it is the first look, by which the tables begin.
                files = self._finder.look() if changes else self._finder.everything()
            while not self._found(compare(self._rows, files), changes=changes):
                self._take(self._ledger.rows)
            self._finder.done()
        self._unexamined = None if changes else files

    def _found(self, listed: ListedFiles, *, changes: bool) -> bool:
        """Number what is new; False where somebody else was faster, and it must be looked at again."""
        new = listed.new
        more = []
        if changes and listed.changed.num_rows:
            if self._source.on_change == "fail":
                raise SourceError(f"{self._whose}: {listed.refusal()}")
            unread = pc.greater_equal(listed.known["number"], file_number(self._read_to))
            # A file that nobody has read is read as it is now; one that was read, only if that is asked for.
            if self._source.on_change == "reload":
                wanted = listed.changed
            else:
                untouched = pc.and_(unread, self._untouched(listed.known))
                behind = pc.and_(unread, pc.invert(untouched))
                self._ignored = set(listed.known["number"].filter(behind).to_pylist())
                unread, wanted = untouched, listed.changed.filter(untouched)
            new = pa.concat_tables([new, wanted])
            more = [with_state(listed.known.filter(unread), REPLACED)]
        if not new.num_rows:
            return True
        rows = pa.concat_tables([found(in_order(new), self._next_number), *more])
        if self._runs:
            if not self._ledger.append(rows):
                return False
            self._take(self._ledger.rows)
        else:
            self._take(counting(pa.concat_tables([self._rows, rows])))
        return True

    def _untouched(self, known: pa.Table) -> pa.ChunkedArray:
        """Whether no table has read a file."""
        ahead = pc.greater_equal(known["number"], file_number(self._reached))
        return pc.and_(ahead, pc.equal(known["state"], WAITING))

    def _skip(self, first: int) -> None:
        """Note files before the first one that is read, so that nobody takes them for read."""
        before = pc.less(self._rows["number"], first)
        rows = self._rows.filter(pc.and_(before, pc.equal(self._rows["state"], WAITING)))
        if self._runs and rows.num_rows:
            self._write(with_state(rows, SKIPPED))

    def _write(self, rows: pa.Table) -> None:
        """Tell the ledger what became of files, and go on with what it has then."""
        with self._errors():
            while not self._ledger.append(rows):
                pass
            self._take(self._ledger.rows)

    def _first_number(self) -> int:
        """The number of the first file that a table begins with."""
        start = self._source.start
        if start == "new":
            return self._next_number
        if isinstance(start, dt.datetime):
            later = self._rows.filter(pc.greater_equal(self._rows["modified"], pa.scalar(start)))
            return int(later["number"][0].as_py()) if later.num_rows else self._next_number
        return 1

    def _tell_ledger(self) -> None:
        """Write what became of files that every table has by now."""
        if not self._runs or not self._noted:
            return
        done = pc.less(self._rows["number"], min(file_number(self._read_to), self._next_number))
        skipped = pc.and_(
            pc.equal(self._rows["state"], SKIPPED),
            pc.is_in(self._rows["number"], value_set=pa.array(self._noted)),
        )
        rows = self._rows.filter(pc.and_(done, pc.or_(pc.equal(self._rows["state"], WAITING), skipped)))
        if not rows.num_rows:
            return
        # Of files from before a kill nobody knows the counts any more.
        parts = [self._noted.pop(number, _UNCOUNTED) for number in rows["number"].to_pylist()]
        told = with_state(
            rows,
            [READ if part.error is None else UNREADABLE for part in parts],
            rows=[None if part is _UNCOUNTED else part.records for part in parts],
            dead_letters=[None if part is _UNCOUNTED else part.dead_letters for part in parts],
            version=[part.version for part in parts],
            read_at=[dt.datetime.now(dt.UTC)] * len(parts),
            error=[part.error for part in parts],
        )
        self._write(told)

    def _take_away(self) -> bool:
        """Delete or move files that all tables have; False where there is nothing more to do."""
        if self._after is None or not self._runs:
            return False
        with self._errors():
            due = self._after.due(self._rows, file_number(self._acknowledged))
            gone = self._after.take_away(due) if due.num_rows else due
            if not gone.num_rows:
                return False
        self._write(gone)
        return True

    def _weigh(self, file: FoundFile) -> Work:
        source = self._source
        if file.number in self._ignored:
            return Work(replace(file, changed=True), 0)
        if codec_of(file.path) is not None:
            return Work(file, file.size * _EXPANDS)
        if source.has_columns:
            return Work(file, file.size * _EXPANDS, self._rows_of(file))
        cuts = source.format.type in source.line_formats and source.encoding is None
        return Work(file, file.size, file.size if cuts else 0)

    def _rows_of(self, file: FoundFile) -> int:
        """The rows of a large Parquet file, so that it can be cut; 0 of others."""
        if file.size < _WORTH_CUTTING:
            return 0
        with suppress(FileNotFoundError), self._opener.open(file.path) as stream:
            return sum(row_groups(stream) or ())
        return 0

    def _errors(self) -> AbstractContextManager[None]:
        return source_errors(self._whose)


def _expansion(paths: pa.ChunkedArray) -> pa.Array:
    """How many times larger each file is when it is read."""
    small = r"(?i)\.(gz|gzip|zst|zstd|bz2|xz|sz|snappy|parquet|avro)$"
    return pc.if_else(pc.match_substring_regex(paths, small), _EXPANDS, 1)


def _number(table_id: str) -> int:
    """The id of a table as a number of 63 bits."""
    return uuid.uuid5(uuid.NAMESPACE_URL, table_id).int >> 65
