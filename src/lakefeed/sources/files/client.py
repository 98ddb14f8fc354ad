"""Files as the driver sees them: found and numbered in the ledger, planned, and told what became of them."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from itertools import chain
from shlex import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.errors import (
    DataLoss,
    FileChanged,
    LakefeedError,
    SourceError,
)
from lakefeed.events import OffsetRange, Offsets, Outstanding, PartRead, Reload, Split
from lakefeed.sources import PARTITION, Allowance, Finding, SourceClient
from lakefeed.sources.files.after import After
from lakefeed.sources.files.discovery import FoundFiles, ListedFiles, compare, in_order
from lakefeed.sources.files.finding.finder import Finder
from lakefeed.sources.files.known import EXPANDS, READ, REPLACED, SKIPPED, UNREADABLE, WAITING, Numbers
from lakefeed.sources.files.ledger import (
    LEDGER,
    LEDGER_MARK,
    Ledger,
    LedgerLocation,
    found,
    ledger_mark,
    replacing,
    with_state,
)
from lakefeed.sources.files.moved import MovedFiles, moved_files
from lakefeed.sources.files.offset import BEGUN_MARK, FIRST_MARK, MOST_NUMBERS, file_number, file_start
from lakefeed.sources.files.piece import FoundFile, Work
from lakefeed.sources.files.reading.opening import FileOpener, codec_of
from lakefeed.sources.files.reading.parquet import row_groups
from lakefeed.sources.files.source import FilesSource
from lakefeed.sources.files.waiting import FIRST_GUESS, WaitingFiles
from lakefeed.sources.source_errors import source_errors
from lakefeed.text import counted

_log = logging.getLogger("lakefeed")
_WORTH_CUTTING = 32 * 2**20
"""Bytes of a Parquet file from which on its footer is read, to share out its rows."""
_REPLACES = LEDGER.field("replaces")
_UNCOUNTED = PartRead()
_AT_A_TIME = 100_000
"""Files that the ledger is told of together."""
_NOTED = 50_000
"""Files that were read from which on the ledger is told, though it is not time to look for others."""


class FilesClient(SourceClient):
    """Finds files and plans batches of whole ones. Only a run writes to the ledger: see `begin`."""

    def __init__(self, source: FilesSource, name: str, location: LedgerLocation) -> None:
        self._source = source
        self._whose = f"source {name}"
        self._scope = source.scope
        self._runs = False
        self._start: Offsets | None = None
        self._unexamined: FoundFiles | None = None
        """What was listed before the positions of the tables were known."""
        self._per_record = FIRST_GUESS
        self._noted: dict[int, PartRead] = {}
        self._planned: list[OffsetRange] = []
        """What tasks were given since the last batch: a file without records has no part of its own."""
        self._read_to = file_start(MOST_NUMBERS)
        """The lowest position of a table: what every one of them has read."""
        self._reached = 0
        """The highest position of a table: behind it, nobody has read anything."""
        self._ignored: set[int] = set()
        """Files that have changed since some table has read them, and that others still have to read."""
        self._told_taken = False
        self._doubt = ""
        """What is told of files that are left out, as they may have been read."""
        self._moved: MovedFiles | None = None
        """Files that look like some of the ledger that were in another folder: for those who only look."""
        self._new = 0
        """Files that the ledger did not have, as far as was looked without a run."""
        self._tidied_at: float | None = None
        with self._errors():
            self._ledger = Ledger(location)
            self._finder = Finder(source, self._whose, self._ledger)
            self._opener = FileOpener(self._scope.base, source.storage)
        self._waiting = WaitingFiles(self._ledger)
        self._acknowledged = self._told_before = 0
        self._after = After(source, self._opener) if source.takes_away() else None
        self._looked_to = 0
        """The number up to which files were looked at that `after` may take away."""

    def begin(self) -> None:
        """From now on, what is found is written into the ledger."""
        self._runs = True
        with self._errors():
            self._ledger.create()
            self._ledger.compact()
            self._finder.begin()

    def start(self) -> Offsets:
        """The same for every table that begins in this run."""
        if self._start is None:
            self._discover()
            first = self._first_number()
            self._start = {PARTITION: file_start(first)}
            if not self._reached and self._runs:
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
            self._tidy_ledger()
        elif len(self._noted) >= _NOTED:
            self._tell_ledger()
        return {PARTITION: file_start(self._ledger.known.next_number)}

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Refuse to go on with another ledger than before, or with one that does not know what was read."""
        at = positions.get(PARTITION, file_start(1))
        if not self._finder.has_listed:
            self._discover()
        self._refuse_doubtful(self._moved)
        known, path = self.marks().get(LEDGER_MARK), self._source.ledger
        if file_number(at) > 1 and (known is None or marks.get(LEDGER_MARK, known) != known):
            what = "is gone" if known is None else "is another one than before"
            raise DataLoss(
                f"{self._whose}: the ledger of files, {path}, {what}: nobody knows which files were read.\n"
                "Bring it back, or name the right one in `ledger`. To read all files again, drop the tables "
                "that they are in."
            )
        if at > file_start(self._ledger.known.next_number):
            raise DataLoss(
                f"{self._whose}: {self._source.describe_offset(at)} comes next, but the ledger {path} ends "
                f"before file {self._ledger.known.next_number:,}: it was brought back to an older state.\n"
                "Restore its newest version: lakefeed table history and restore."
            )
        self._read_to, self._reached = min(self._read_to, at), max(self._reached, at)
        return {PARTITION: at}

    def lost_between(self, position: Offsets, ends: Offsets) -> str | None:
        """Files that `after` has deleted or moved."""
        between = position[PARTITION], ends[PARTITION]
        gone, left_out = self._waiting.taken_away(*between), self._waiting.left_out(*between)
        told = [f"`after` has deleted or moved {counted(gone, 'file')} of them"] if gone else []
        told += (
            [f"`forget_after` has taken {counted(left_out, 'file')} out of the ledger"] if left_out else []
        )
        return ", and ".join(told) or None

    def marks(self) -> dict[str, int]:
        """The id of the ledger as a number."""
        return {} if self._ledger.id is None else {LEDGER_MARK: ledger_mark(self._ledger.id)}

    def begun(self, start: Offsets, marks: Mapping[str, int]) -> dict[str, int]:
        """Which file a table begins with, and the next number by then: what others replace is known."""
        # Where only the ledger is known, an earlier release has begun the table.
        if PARTITION not in start or (LEDGER_MARK in marks and marks.get(FIRST_MARK) != start[PARTITION]):
            return {}
        return {FIRST_MARK: start[PARTITION], BEGUN_MARK: file_start(self._ledger.known.next_number)}

    def rows_between(self, position: Offsets, ends: Offsets) -> dict[str, int]:
        """By the size of the files, and the size that records have had."""
        return {
            name: self._waiting.rows_guessed(at, ends.get(name, at), self._per_record)
            for name, at in position.items()
        }

    def outstanding(self, position: Offsets, ends: Offsets) -> Outstanding:
        """The files that wait, and their bytes as they are read; and those that are too young for that."""
        at, end, young = position.get(PARTITION, 0), ends.get(PARTITION, 0), self._finder.young
        gone, new = (0, 0) if self._runs else self._gone_and_new()
        return Outstanding(
            self._waiting.files_between(at, end),
            self._waiting.bytes_between(at, end),
            young=young,
            settle=self._source.settle if young else None,
            gone=gone,
            new=new,
        )

    def rows_read(self, position: Offsets, ends: Offsets) -> dict[str, int] | None:
        """By the ledger, where it has counted all of these files."""
        counts = {name: self._waiting.records(at, ends[name]) for name, at in position.items()}
        return {name: count for name, count in counts.items() if count is not None} or None

    def rows_missed(self, position: Offsets, ends: Offsets, made: int) -> dict[str, int]:
        """Those of files that `after` had taken away by then, or that had another content."""
        return {name: self._waiting.missed(at, ends[name], made * 1000) for name, at in position.items()}

    def unread_again(self, position: Offsets, ends: Offsets) -> int:
        """Files whose path was forgotten, or has another content that was not read in their place."""
        return sum(self._waiting.lost(at, ends[name]) for name, at in position.items())

    def next_end(self, position: Offsets, ends: Offsets, allowed: Allowance) -> Offsets:
        """Behind as many whole files as fit, and one at least."""
        if self._unexamined is not None:
            # A run that ends by itself asks for the latest offsets once only.
            self._discover(self._unexamined, changes=True)
        at, end, most = position[PARTITION], ends[PARTITION], self._source.max_files
        return {PARTITION: self._waiting.next_end(at, end, allowed, self._per_record, most)}

    def unreadable(self, offsets: Collection[int]) -> Collection[int]:
        """Those in files that are gone or changed, unless a newer file of the path is read in their place."""
        with self._errors():
            numbers = self._waiting.read_again(map(file_number, offsets), self._opener.holds)
        return [at for at in offsets if file_number(at) not in numbers]

    def splits(self, ranges: Sequence[OffsetRange], cores: int) -> list[Split]:
        """Tasks of about equal size; a large file of plain lines is read by several."""
        spans = [(span.start, span.end) for span in ranges]
        gone = sum(self._waiting.taken_away(*span) + self._waiting.left_out(*span) for span in spans)
        if gone and not self._told_taken:
            self._told_taken = True
            _log.warning(
                "%s: %s that `after` has deleted or moved%s cannot be read by a table that begins before "
                "them",
                self._whose,
                counted(gone, "file"),
                ", or that are in the ledger no more," if self._source.forget_after else "",
            )
        self._planned += ranges
        with self._errors():
            return [task for span in ranges for task in self._waiting.splits(span, cores, self._weigh)]

    def reloads(self, ranges: Sequence[OffsetRange]) -> list[Reload]:
        """Files that are read again with another content, or because somebody has asked for it."""
        return [one for span in ranges for one in self._reloads_in(span)]

    def _reloads_in(self, span: OffsetRange) -> list[Reload]:
        return self._waiting.reloads(span.start, span.end, takes_away=self._after is not None)

    def age(self, position: Offsets) -> float | None:
        """Since the first file was found that has not been read."""
        at = position.get(PARTITION, 0)
        oldest = self._waiting.oldest(at, file_start(self._ledger.known.next_number))
        return None if oldest is None else max(0.0, time.time() - oldest)

    def note(self, parts: Mapping[str, PartRead]) -> None:
        """Keep what was counted for the ledger, and learn how large records are."""
        # Of a file that has changed, a table that is behind counts its one dead letter; others have its rows.
        read = {
            int(number): _UNCOUNTED if int(number) in self._ignored else part
            for number, part in parts.items()
        }
        self._noted = self._without_records() | self._noted | read
        self._planned = []
        size = sum(self._waiting.bytes_between(file_start(at), file_start(at + 1)) for at in read)
        records = sum(part.records for part in read.values())
        if records and size:
            self._per_record = max(1.0, size / records)

    def _without_records(self) -> dict[int, PartRead]:
        """The files of the tasks, as files without records: a part that was read replaces its entry."""
        waiting = self._ledger.known.numbers_in
        spans = [(file_number(span.start), file_number(span.end)) for span in self._planned]
        return {number: PartRead() for span in spans for number in waiting((WAITING,), *span).tolist()}

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
        """Why the queue does not tell of files, or why files are left out."""
        return self._finder.remark or self._doubt

    def close(self) -> None:
        """Tell the ledger what became of the files; what it is not told, the tables know."""
        if self._runs:
            with suppress(LakefeedError):
                self._tell_ledger()
                while self._take_away():
                    pass
                self._tidy_ledger()

    def _discover(self, files: FoundFiles | None = None, *, changes: bool = False) -> None:
        """Look for files, and give those numbers that the ledger does not know.

        What has changed is examined when it is known what the tables have read: by `latest`.
        """
        with self._errors():
            if self._runs:
                self._ledger.refresh()
            if files is None:
                # Without changes it is the first look, by which the tables begin.
                files = self._finder.look() if changes else self._finder.everything()
            while not self._found(files, changes=changes):
                # Whoever was faster may have taken files away by now, which would look like new ones.
                files = self._finder.everything()
            self._finder.done()
        self._unexamined = None if changes else files

    def _found(self, files: FoundFiles, *, changes: bool) -> bool:
        """Number what is new; False where somebody else was faster, and it must be looked at again."""
        if changes:
            self._ignored = set()
        if not self._taken_over(files):
            return False
        parts = self._numbered(files, changes=changes)
        first = next(parts, None)
        if first is None:
            return True
        if self._runs:
            return self._ledger.append(chain([first], parts))
        self._ledger.hold(chain([first], parts))
        return True

    def _taken_over(self, files: FoundFiles) -> bool:
        """Let files that were moved keep their numbers; False where the ledger must be compared again."""
        self._moved = None
        if self._source.on_move == "read" or not self._ledger.elsewhere:
            return True
        moved = self._kept(moved_files(self._ledger, files, self._source.scope.base))
        if moved is None:
            return True
        if not self._runs:
            self._moved = moved
            return True
        self._refuse_doubtful(moved)
        _log.warning("%s: %s: taken for the same, and not read again", self._whose, moved)
        self._ledger.relocate(moved)
        return False

    def _kept(self, moved: MovedFiles | None) -> MovedFiles | None:
        """With `on_move: keep`, files without those that are proved to be others: these are read."""
        if moved is None or self._source.on_move != "keep":
            return moved
        same, others = moved.by_content(self._opener, self._source.storage)
        if others is not None and self._runs:
            _log.warning("%s: %s, but other content: read as new", self._whose, others)
        return same

    def _refuse_doubtful(self, moved: MovedFiles | None) -> None:
        """Raise SourceError for files that may have been read, unless the source says what they are."""
        if moved is None or not self._is_doubtful(moved):
            return
        raise SourceError(
            f"{self._whose}: {moved.doubtful}: were they moved or copied here, their rows "
            "would be read a second time.\n"
            "Set `on_move: keep` on the source to take them for the files that were read.\n"
            "To read them again, set `on_move: read`, or start once with: "
            f"lakefeed run {self._source.file_argument} --yes"
        )

    def _gone_and_new(self) -> tuple[int, int]:
        """How many known files were not listed, whatever took them away but `after`; how many were not known.

        For those who only look: it costs as much as the ledger is large.
        """
        known, moved = self._ledger.known, self._moved
        missing = known.newest((WAITING, SKIPPED, READ, UNREADABLE))
        missing = missing[known.is_missing(missing)]
        if moved is None:
            return len(missing), self._new
        if self._is_doubtful(moved):
            return len(missing), self._new + len(moved)
        return int(np.count_nonzero(~np.isin(missing, moved.then["number"].to_numpy()))), self._new

    def _is_doubtful(self, moved: MovedFiles) -> bool:
        """Whether it has to be said what some files are, before anything is read."""
        return self._source.on_move == "fail" and not moved.is_sure.all()

    def _numbered(self, files: FoundFiles, *, changes: bool) -> Iterator[pa.Table]:
        """Rows for the ledger: of files that are new, and of those that have changed."""
        for part in files.in_order():
            known = self._ledger.known
            part = part.filter(pa.array(~known.is_as_known(part)))
            listed = compare(self._ledger.rows_of(known.last_numbers(part)), part)
            new, replaced = self._without_moved(self._without_forgotten(listed.new)), None
            self._new += 0 if self._runs else new.num_rows
            if changes and listed.changed.num_rows:
                more, replaced = self._changed(listed)
                new = in_order(pa.concat_tables([new, more], promote_options="default"))
            if new.num_rows:
                yield found(new, self._ledger.known.next_number)
                if replaced is not None and replaced.num_rows:
                    yield replaced

    def _changed(self, listed: ListedFiles) -> tuple[pa.Table, pa.Table]:
        """Of changed files those that are read as they are now, and what the ledger is told of the others."""
        unread = pc.greater_equal(listed.known["number"], file_number(self._read_to))
        # A file that nobody has read is read as it is now; one that was read, only if that is asked for.
        if self._source.on_change == "reload" and self._after is not None:
            # Names are used again where files are taken away: this is another file, that came too early.
            return listed.changed, with_state(listed.known.filter(unread), REPLACED)
        if self._source.on_change == "reload":
            return replacing(listed.known, listed.changed)
        untouched = pc.and_(unread, self._untouched(listed.known))
        if self._source.on_change == "fail" and not pc.all(untouched).as_py():
            read = listed.where(pc.invert(untouched))
            raise FileChanged(f"{self._whose}: {read.refusal(self._source.file_argument)}")
        behind = pc.and_(unread, pc.invert(untouched))
        self._ignored |= set(listed.known["number"].filter(behind).to_pylist())
        known = listed.known.filter(untouched)
        # No table has rows of it, but there may be dead letters.
        changed = listed.changed.filter(untouched).append_column(_REPLACES, known["number"])
        return changed, with_state(known, REPLACED)

    def _without_forgotten(self, new: pa.Table) -> pa.Table:
        """New files but for those that may have been read: that are no newer than one that was forgotten."""
        until = self._ledger.forgotten_until
        if not until:
            return new
        unknown = ~self._ledger.known.has_path(new)
        doubtful = pc.and_(pa.array(unknown), pc.less_equal(new["modified"].cast(pa.int64()), until))
        if count := pc.sum(doubtful).as_py():
            path = new.filter(doubtful)["path"][0].as_py()
            told = (
                f"{counted(count, 'file')} such as {path} may have been read before, and is left out: "
                "no file of its time is in the ledger any more, by `forget_after`"
            )
            if not self._doubt:
                _log.warning("%s: %s. To have it read: touch %s", self._whose, told, quote(path))
            self._doubt = told
        return new.filter(pc.invert(doubtful))

    def _without_moved(self, new: pa.Table) -> pa.Table:
        """New files but for those that are taken for others; a run has given these their old numbers."""
        if self._moved is None:
            return new
        return new.filter(pc.invert(pc.is_in(new["path"], value_set=self._moved.now["path"])))

    def _untouched(self, known: pa.Table) -> pa.ChunkedArray:
        """Whether no table has read a file."""
        ahead = pc.greater_equal(known["number"], file_number(self._reached))
        return pc.and_(ahead, pc.equal(known["state"], WAITING))

    def _skip(self, first: int) -> None:
        """Note files before the first one that is read, so that nobody takes them for read."""
        numbers = self._ledger.known.numbers_in((WAITING,), 0, first)
        if len(numbers):
            self._write(numbers, lambda rows: with_state(rows, SKIPPED))

    def _write(self, numbers: Numbers, told: Callable[[pa.Table], pa.Table]) -> None:
        """Tell the ledger what became of files."""
        edges = range(0, len(numbers), _AT_A_TIME)
        with self._errors():
            while not self._ledger.append(
                told(self._ledger.rows_of(numbers[at : at + _AT_A_TIME])) for at in edges
            ):
                pass

    def _first_number(self) -> int:
        """The number of the first file that a table begins with."""
        start, following = self._source.start, self._ledger.known.next_number
        if start == "new":
            return following
        if isinstance(start, dt.datetime):
            return self._ledger.first_modified(start) or following
        return 1

    def _tell_ledger(self) -> None:
        """Write what became of files that every table has by now."""
        if not self._runs or not self._noted:
            return
        known = self._ledger.known
        end = min(file_number(self._read_to), known.next_number)
        noted = np.array([number for number in self._noted if number < end], np.int64)
        skipped = noted[known.are_in((SKIPPED,), noted)]
        numbers = np.union1d(known.numbers_in((WAITING,), self._told_before, end), skipped)
        numbers = np.union1d(numbers, self._recounted(noted[known.are_in((READ,), noted)]))
        if len(numbers):
            self._write(numbers, self._told)
        self._told_before = end
        self._noted = {number: part for number, part in self._noted.items() if number >= end}

    def _recounted(self, numbers: Numbers) -> Numbers:
        """Those of some files that were read again, after a rewind, and have other records than before."""
        rows = self._ledger.rows_of(numbers)
        parts = [self._noted[number] for number in rows["number"].to_pylist()]
        records = pa.array([None if part.error else part.records for part in parts], pa.int64())
        is_other = pc.fill_null(pc.not_equal(rows["rows"], records), False)
        found: Numbers = rows["number"].filter(is_other).to_numpy()
        return found

    def _told(self, rows: pa.Table) -> pa.Table:
        """Rows of files that were read, with what was counted."""
        # Of files from before a kill nobody knows the counts any more.
        parts = [self._noted.get(number, _UNCOUNTED) for number in rows["number"].to_pylist()]
        return with_state(
            rows,
            [READ if part.error is None else UNREADABLE for part in parts],
            rows=[None if part is _UNCOUNTED else part.records for part in parts],
            dead_letters=[None if part is _UNCOUNTED else part.dead_letters for part in parts],
            version=[part.version for part in parts],
            read_at=[dt.datetime.now(dt.UTC)] * len(parts),
            error=[part.error for part in parts],
        )

    def _take_away(self) -> bool:
        """Delete or move files that all tables have, some at a time; False when all were looked at."""
        if self._after is None or not self._runs:
            return False
        state = self._after.state
        known, end = self._ledger.known, file_number(self._acknowledged)
        numbers = known.numbers_in((READ,), self._looked_to, end)[: After.MOST]
        if not len(numbers):
            self._looked_to = 0
            return False
        with self._errors():
            rows = self._ledger.rows_of(numbers)
            # What lies at a path is its last number; those before were overwritten.
            rows = rows.filter(pa.array(known.last_numbers(rows) == numbers))
            due, is_early = self._after.due(rows)
            gone = self._after.take_away(due)
        # Those behind a file that has to stay for a while have to stay longer.
        self._looked_to = 0 if is_early else int(numbers[-1]) + 1
        if gone.num_rows:
            self._write(gone["number"].to_numpy(), lambda rows: with_state(rows, state))
        return not is_early

    def _tidy_ledger(self) -> None:
        """Compact the ledger when it has many files, and now and then take old files out of it."""
        if not self._runs:
            return
        with self._errors():
            self._ledger.compact()
            keep, now = self._source.forget_after, time.monotonic()
            last = self._tidied_at
            if keep is None or not self._finder.listings or (last is not None and now - last < keep / 10):
                return
            self._tidied_at = now
            before = int((time.time() - keep) * 1_000_000)
            gone = self._ledger.forget(before, file_number(self._acknowledged))
        if gone:
            _log.info("%s: %s taken out of the ledger, by `forget_after`", self._whose, counted(gone, "file"))

    def _weigh(self, file: FoundFile) -> Work:
        work = self._weighed(file)
        if work.may_be_cut and not self._opener.exists(file):
            # One task makes one dead letter of all of it.
            return Work(file, 0)
        return work

    def _weighed(self, file: FoundFile) -> Work:
        source = self._source
        if file.number in self._ignored:
            return Work(replace(file, changed=True), 0)
        if codec_of(file.path) is not None:
            return Work(file, file.size * EXPANDS)
        if source.has_columns:
            return Work(file, file.size * EXPANDS, self._rows_of(file))
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
