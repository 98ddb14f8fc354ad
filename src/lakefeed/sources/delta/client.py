"""A Delta table as the driver reads it: which versions there are, what waits in them, what a task reads."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from lakefeed.errors import (
    DataLoss,
    LakefeedError,
    SourceError,
    SourceUnavailable,
    TableError,
)
from lakefeed.events import OffsetRange, Offsets, Outstanding, Split
from lakefeed.sources import PARTITION, Allowance, Reread, SourceClient
from lakefeed.sources.delta.beginning import Beginning
from lakefeed.sources.delta.event_time import order_mark
from lakefeed.sources.delta.history import History, VersionRows
from lakefeed.sources.delta.offset import BEGINNING, DeltaOffset, version_start
from lakefeed.sources.delta.piece import Piece, cut_out, tasks
from lakefeed.sources.delta.source import TABLE_MARK, DeltaSource
from lakefeed.sources.delta.stops import refusal, stops
from lakefeed.sources.delta.versions import VersionsToRead, versions_to_read
from lakefeed.sources.source_errors import source_errors
from lakefeed.tables.log.entry import Cleaned
from lakefeed.tables.retention import DELETED_FILES, LOG_ENTRIES, retention
from lakefeed.text import first_line

_READ_AHEAD = 500
"""Versions that are looked into at a time, so that it is known how much waits in them."""
_ORDER = "order"


class DeltaClient(SourceClient):
    """Which versions there are, and what they add. What tables have read is told through `check`."""

    def __init__(self, source: DeltaSource, name: str) -> None:
        self._source, self._name = source, name
        self._start: Offsets | None = None
        self._ahead: int | None = None
        """The first version that nobody has looked into."""
        self._passed: dict[tuple[int, DeltaOffset], bool] = {}
        with source_errors(self._whose):
            self._history = History(source)
        self._beginning = Beginning(source, name, self._history)

    def start(self) -> Offsets:
        """The same for every table that begins in this run."""
        if self._start is None:
            with source_errors(self._whose):
                first = self._beginning.first()
                self._start = {PARTITION: first.number}
                self._look_ahead(first.version if first.past else first.version + 1)
        return dict(self._start)

    def start_again(self, dead_letters: Callable[[], Collection[int]]) -> Offsets:
        """With the snapshot that the letters were counted in: another one has other offsets."""
        start = self.start()
        if self._source.start != "earliest" or self._history.newest < 0:
            return start
        with source_errors(self._whose):
            again = self._beginning.again(dead_letters())
            if again is None:
                return start
            self._look_ahead(again.version + 1)
        return {PARTITION: again.number}

    def reread(self, start: Offsets, dead_letters: Collection[int]) -> Reread:
        """A table that begins with another snapshot than its dead letters gets rows of theirs again."""
        begin = DeltaOffset.of(start[PARTITION])
        letters = [DeltaOffset.of(number) for number in dead_letters]
        earlier = [one.version for one in letters if one.is_reread_from(begin)]
        if not earlier:
            return "never"
        if begin.past:
            return "some"
        with source_errors(self._whose):
            return "all" if self._beginning.has_all_rows_since(min(earlier), begin.version) else "some"

    def latest(self) -> Offsets:
        """Behind the newest version; the beginning while there is no table."""
        with source_errors(self._whose):
            self._history.look()
            self._look_ahead()
        return {PARTITION: self._history.end.number}

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Refuse to go on in another table than before, or where versions or their files' list are gone."""
        at = DeltaOffset.of(positions.get(PARTITION, 0))
        with source_errors(self._whose):
            if self._history.newest < 0 and at != BEGINNING:
                raise DataLoss(
                    f"{self._whose}: there is no Delta table at {self._source.path} any more.\n"
                    f"Bring it back; to begin with a new one, remove the tables that were read from the old."
                )
            if TABLE_MARK in marks and marks[TABLE_MARK] != self.marks().get(TABLE_MARK, marks[TABLE_MARK]):
                raise DataLoss(
                    f"{self._whose}: another table lies at {self._source.path} than the one that was read: "
                    "it was deleted and made anew.\nThe rows of the old one are still in what it fed; to "
                    "begin with the new one, drop those tables and start again."
                )
            if self._source.change_feed and at.past and at.row:
                raise SourceError(
                    f"{self._whose}: {at} comes next, in the middle of the rows that the version adds, and "
                    "changes are read by whole versions.\nRead that version without `change_feed` first, or "
                    "drop the tables that it feeds: they begin anew."
                )
            if not at.past and at.row and marks.get(_ORDER, 0) != order_mark(self._source.event_time_order):
                raise SourceError(
                    f"{self._whose}: `event_time_order` was changed while {at} comes next: rows before it "
                    "are others now.\nSet it back until the snapshot is read, or drop the tables it feeds."
                )
            at = self._beginning.served(at)
            self._look_ahead(at.version if at.past else at.version + 1)
        return {PARTITION: at.number}

    def retention(self) -> dict[str, float]:
        """How long the log has its entries, and the store the files that compaction has replaced."""
        log = self._history.log
        with source_errors(self._whose):
            metadata = log.metadata() if log else None
        if metadata is None:
            return {}
        properties = dict(metadata.get("configuration") or ())
        names = {"its log": LOG_ENTRIES, "a replaced file": DELETED_FILES}
        return {name: retention(properties, key) for name, key in names.items()}

    def age(self, position: Offsets) -> float | None:
        """Since the first version was committed that has something to read."""
        start, end = DeltaOffset.of(position.get(PARTITION, 0)), self._history.end
        with source_errors(self._whose):
            for number in self._versions(start, end):
                if (added := self._version(number)).rows:
                    return max(0.0, time.time() - added.committed / 1000)
        return None

    def marks(self) -> dict[str, int]:
        """The id of the table as a number, cut to 63 bits."""
        with source_errors(self._whose):
            if self._history.id is None:
                return {}
        order = order_mark(self._source.event_time_order)
        return {TABLE_MARK: _number(self._history.id), **({_ORDER: order} if order else {})}

    def rows_between(self, position: Offsets, ends: Offsets) -> dict[str, int]:
        """By the log; of versions that nobody has looked into yet, a guess."""
        return {
            name: self._waiting(DeltaOffset.of(at), DeltaOffset.of(ends.get(name, at)))
            for name, at in position.items()
        }

    def outstanding(self, position: Offsets, ends: Offsets) -> Outstanding:
        """By the log; versions that nobody has looked into yet are left out."""
        start, end = (DeltaOffset.of(offsets.get(PARTITION, 0)) for offsets in (position, ends))
        history = self._history
        known = [history.known(number) for number in self._versions(start, end)] if start < end else []
        if start < end and not start.past:
            known.append(history.known_snapshot(start.version))
        pieces = [piece for added in known if added for piece in cut_out(added.pieces, start, end)]
        return Outstanding(len(pieces), sum(piece.size for piece in pieces))

    def rows_read(self, position: Offsets, ends: Offsets) -> dict[str, int] | None:
        """By the log, where it still has all of these versions."""
        found = {}
        try:
            for name, at in position.items():
                pieces = list(self._pieces(DeltaOffset.of(at), DeltaOffset.of(ends[name])))
                if any(isinstance(piece, int) for piece in pieces):
                    return None
                found[name] = sum(self._history.live(piece) for piece in pieces if isinstance(piece, Piece))
        except (DataLoss, TableError):
            return None
        return found

    def next_end(self, position: Offsets, ends: Offsets, allowed: Allowance) -> Offsets:
        """Behind as many files as fit; in the middle of one where a single one does not fit.

        Raises SourceError at a version that deletes or changes rows.
        """
        start, end = DeltaOffset.of(position[PARTITION]), DeltaOffset.of(ends[PARTITION])
        # A snapshot has all versions up to its own: none of them comes behind it.
        end = max(end, version_start(start.version + 1)) if end.past > start.past else end
        with source_errors(self._whose):
            self._history.forget(start.version)
            return {PARTITION: self._fitting_end(start, end, allowed).number}

    def pass_over(self, position: Offsets) -> Offsets:
        """Behind versions without rows, such as compactions: the log does not keep them for ever."""
        at = DeltaOffset.of(position[PARTITION])
        try:
            self.latest()
            if self._history.newest < 0 or self._ahead is None:
                return position
            end = min(self._history.end, version_start(self._ahead))
            if end <= at or self._versions(at, end).stopped_by is not None:
                return position
            first = next(self._pieces(at, end), None)
        except LakefeedError:
            return position
        if first is not None:
            end = version_start(first) if isinstance(first, int) else replace(first.start, row=0)
        return {PARTITION: max(at, end).number}

    def splits(self, ranges: Sequence[OffsetRange], cores: int) -> list[Split]:
        """Tasks of about equal rows; each knows its files, and the columns that the table had."""
        found_tasks: list[Split] = []
        with source_errors(self._whose):
            for span in ranges:
                found = self._pieces(DeltaOffset.of(span.start), DeltaOffset.of(span.end))
                pieces = [piece for piece in found if isinstance(piece, Piece)]
                found_tasks += tasks(span, pieces, cores, self._payload)
        return found_tasks

    @property
    def _whose(self) -> str:
        return self._source.called(self._name)

    def _look_ahead(self, first: int | None = None) -> None:
        """Look into some more versions, at first from the one on that is read next."""
        if first is not None:
            self._ahead = first if self._ahead is None else min(first, self._ahead)
        if self._ahead is None:
            return
        for number in range(self._ahead, min(self._history.newest + 1, self._ahead + _READ_AHEAD)):
            if self._history.known(number) is None:
                self._version(number)
            self._ahead = number + 1

    def _version(self, number: int) -> VersionRows:
        try:
            return self._history.version(number)
        except Cleaned as error:
            # The next run asks `check` where to go on.
            kind = SourceUnavailable if self._source.on_data_loss == "skip" else DataLoss
            raise kind(f"{self._whose}: {first_line(error)}") from None

    def strand(self, position: Offsets) -> Hashable:
        """Those who read the same snapshot go together, and all who are past it."""
        at = DeltaOffset.of(position.get(PARTITION, 0))
        return None if at.past else at.version

    def _versions(self, start: DeltaOffset, end: DeltaOffset) -> VersionsToRead:
        """The versions to be read between two offsets."""
        last = end.version if end.row else end.version - 1
        # A feed tells of a restore like of any other change.
        follows = self._source.ignore_changes or self._source.change_feed
        restores = {} if follows else self._history.restores
        last = last if end.past else -1
        found = versions_to_read(start, last, restores)
        if found.stopped_by is None:
            return found
        back = version_start(restores[found.stopped_by] + 1)
        return versions_to_read(back, last, restores) if self._has_only_passed(back, start) else found

    def _has_only_passed(self, back: DeltaOffset, at: DeltaOffset) -> bool:
        """Whether a reader has come from one offset to another over versions without rows.

        Then nothing that it has read is taken back.
        """
        key = back.version, at
        if key not in self._passed:
            try:
                versions = [self._history.version(number) for number in range(back.version, at.version)]
                self._passed[key] = at.past and not at.row and not any(one.pieces for one in versions)
            except TableError:
                return False
        return self._passed[key]

    def _waiting(self, start: DeltaOffset, end: DeltaOffset) -> int:
        if end <= start:
            return 0
        found, history = self._versions(start, end), self._history
        if found.stopped_by is not None:
            return 1
        rows = unknown = known = 0
        if not start.past:
            snapshot = history.known_snapshot(start.version)
            rows = sum(piece.live for piece in cut_out(snapshot.pieces, start, end)) if snapshot else 1
        for number in found:
            added = history.known(number)
            if added is None:
                unknown += 1
                continue
            known += 1
            own = sum(piece.live for piece in cut_out(added.pieces, start, end))
            rows += max(own, 1) if stops(self._source, added) else own
        return rows + unknown * (max(1, rows // known) if known else 1)

    def _fitting_end(self, start: DeltaOffset, end: DeltaOffset, allowed: Allowance) -> DeltaOffset:
        rows = size = files = 0
        at, stopped_by = start, None
        for piece in self._pieces(start, end):
            if isinstance(piece, int):
                stopped_by = piece
                break
            rows, size, files = rows + piece.rows, size + piece.size, files + 1
            if rows <= allowed.rows and size <= allowed.bytes and files <= self._source.max_files:
                at = piece.end
                continue
            if self._source.change_feed and piece.start.past:
                return self._whole_versions(start, piece.start.version, end)
            if files > 1:
                return self._rounded(at, end)
            return self._rounded(piece.fitting_end(allowed), end)
        if stopped_by is None:
            return end
        if not files:
            added, back_to = self._version(stopped_by), self._history.restores.get(stopped_by)
            raise refusal(self._source, self._name, stopped_by, added, back_to)
        return version_start(stopped_by)

    def _whole_versions(self, start: DeltaOffset, full: int, end: DeltaOffset) -> DeltaOffset:
        """Before a version that does not fit, or behind it where it is the first: changes come together."""
        before = version_start(full)
        return before if before > start else min(end, version_start(full + 1))

    def _rounded(self, at: DeltaOffset, end: DeltaOffset) -> DeltaOffset:
        """Behind the last row of a version is before the first of the next, which is told in one way."""
        added = self._version(at.version) if at.past else self._history.snapshot(at.version)
        return min(end, version_start(at.version + 1)) if at.row >= _total(added) else at

    def _pieces(self, start: DeltaOffset, end: DeltaOffset) -> Iterator[Piece | int]:
        """What lies between two offsets; a number in the end is a version that the reader cannot pass."""
        found = self._versions(start, end)
        if found.stopped_by is not None:
            yield found.stopped_by
            return
        if not start.past:
            yield from cut_out(self._history.snapshot(start.version).pieces, start, end)
        for number in found:
            added = self._version(number)
            if stops(self._source, added):
                yield number
                return
            yield from cut_out(added.pieces, start, end)

    def _payload(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        """What a task needs: pieces, under the columns that the table had at their version."""

        def schema(piece: Piece) -> str:
            start = piece.start
            added = self._version(start.version) if start.past else self._history.snapshot(start.version)
            return added.schema_of(piece)

        return [
            {"schema": text, "pieces": [piece.payload() for piece in group]}
            for text, group in groupby(pieces, schema)
        ]


def _total(added: VersionRows) -> int:
    return added.pieces[-1].end.row if added.pieces else 0


def _number(table_id: str) -> int:
    """The id of a table, a UUID, as a number of 63 bits."""
    try:
        both = uuid.UUID(table_id).int
    except ValueError:
        both = uuid.uuid5(uuid.NAMESPACE_URL, table_id).int
    return ((both >> 64) ^ ((both & (2**64 - 1)) << 1)) & (2**63 - 1)
