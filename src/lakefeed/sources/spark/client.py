"""What Spark has read of a source, as the driver plans it: whole batches, and rows of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from lakefeed.errors import DataLoss
from lakefeed.events import OffsetRange, Offsets, Outstanding, Split
from lakefeed.sources import PARTITION, Allowance, SourceClient
from lakefeed.sources.delta.offset import DeltaOffset
from lakefeed.sources.delta.piece import Piece, tasks
from lakefeed.sources.spark.query import SourceQuery, query_of
from lakefeed.sources.spark.source import SparkSource
from lakefeed.sources.spark.spool import Spool, batch_start, words

_MARK = "query"


class SparkClient(SourceClient):
    """The batches in the spool; in a run, Spark adds to them."""

    def __init__(self, source: SparkSource, pipeline: str, name: str) -> None:
        self._source, self._whose = source, f"source {name}"
        self._spool = Spool(source.folder(pipeline, name))
        self._query: SourceQuery | None = query_of(source, self._whose, self._spool)
        self._spool.look()

    def start(self) -> Offsets:
        """The oldest batch that is kept."""
        self._begin()
        first = min(self._spool.batches, default=0)
        return {PARTITION: batch_start(first).number}

    def latest(self) -> Offsets:
        """Behind the newest batch. Spark goes on reading from here on."""
        if self._query:
            self._begin()
            self._query.follow()
        return self._end()

    def until(self) -> Offsets:
        """What Spark finds now, and no more."""
        if self._query:
            self._begin()
            self._query.drain()
        return self._end()

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Refuse to go on with another checkpoint than before, or where batches are gone."""
        at = DeltaOffset.of(positions.get(PARTITION, batch_start(0).number))
        if _MARK in marks and marks[_MARK] != self.marks().get(_MARK):
            there = "is another one" if self._spool.query_id else "is gone"
            raise DataLoss(
                f"{self._whose}: Spark's checkpoint at {self._spool.checkpoint} {there} since the table was "
                "fed: nobody knows which rows it has.\nBring the checkpoint back; or drop the table and "
                "start again: it begins anew, with what the source gives then."
            )
        oldest = min(self._spool.batches, default=at.version)
        if at.version < oldest:
            raise DataLoss(
                f"{self._whose}: {words(at.number)} comes next, but batches are kept from {oldest} on "
                f"(`retain`).\nTake the table to a later version, or drop it: it begins with batch {oldest}."
            )
        if at > self._spool.end:
            raise DataLoss(
                f"{self._whose}: {words(at.number)} comes next, but {self._spool.folder} has batches up to "
                f"{words(self._spool.end.number)} only.\nBring the folder back as it was, or drop the table."
            )
        return {PARTITION: at.number}

    def marks(self) -> dict[str, int]:
        """The id of Spark's query as a number, cut to 63 bits."""
        found = self._spool.query_id
        return {} if found is None else {_MARK: uuid.UUID(found).int & (2**63 - 1)}

    def rows_between(self, position: Offsets, ends: Offsets) -> dict[str, int]:
        """By the lists of the batches."""
        return {
            name: sum(piece.rows for piece in self._pieces(at, ends.get(name, at)))
            for name, at in position.items()
        }

    def outstanding(self, position: Offsets, ends: Offsets) -> Outstanding:
        """By the lists of the batches."""
        pieces = [piece for name, at in position.items() for piece in self._pieces(at, ends.get(name, at))]
        return Outstanding(len(pieces), sum(piece.size for piece in pieces))

    def rows_read(self, position: Offsets, ends: Offsets) -> dict[str, int] | None:
        """While batches are kept."""
        starts = [DeltaOffset.of(at).version for at in position.values()]
        if min(starts, default=0) < min(self._spool.batches, default=0) or not self._spool.batches:
            return None
        return self.rows_between(position, ends)

    def next_end(self, position: Offsets, ends: Offsets, allowed: Allowance) -> Offsets:
        """Behind as many files as fit; in the middle of one where a single one does not fit."""
        at = DeltaOffset.of(position[PARTITION])
        end, rows, size = DeltaOffset.of(ends[PARTITION]), 0, 0
        for piece in self._pieces(position[PARTITION], ends[PARTITION]):
            rows, size = rows + piece.rows, size + piece.size
            if rows <= allowed.rows and size <= allowed.bytes:
                at = piece.end
                continue
            if at == DeltaOffset.of(position[PARTITION]):
                at = piece.fitting_end(allowed)
            return {PARTITION: self._rounded(at, end).number}
        return {PARTITION: end.number}

    def splits(self, ranges: Sequence[OffsetRange], cores: int) -> list[Split]:
        """Tasks of about equal rows; each knows its files."""

        def payload(pieces: Sequence[Piece]) -> dict[str, Any]:
            return {"folder": str(self._spool.folder), "pieces": [piece.payload() for piece in pieces]}

        every = ((span, self._pieces(span.start, span.end)) for span in ranges)
        return [task for span, pieces in every for task in tasks(span, pieces, cores, payload)]

    def age(self, position: Offsets) -> float | None:
        """Since Spark has read the batch that comes next."""
        found = self._spool.batches.get(DeltaOffset.of(position.get(PARTITION, 0)).version)
        return None if found is None else max(0.0, time.time() - found.written)

    def acknowledge(self, positions: Offsets) -> None:
        """Batches that every table has are deleted, after a while."""
        if PARTITION in positions:
            first = DeltaOffset.of(positions[PARTITION]).version
            self._spool.forget(first, self._source.retain)
            if self._query:
                self._query.taken(first)

    def close(self) -> None:
        """Spark stops with the last who reads what it brings."""
        if self._query:
            self._query.release()
            self._query = None

    def _begin(self) -> None:
        """Only where Spark will read: who just looks leaves no trace."""
        if self._query:
            self._spool.begin()

    def _end(self) -> Offsets:
        self._spool.look()
        return {PARTITION: self._spool.end.number}

    def _pieces(self, start: int, end: int) -> list[Piece]:
        return list(self._spool.between(DeltaOffset.of(start), DeltaOffset.of(end)))

    def _rounded(self, at: DeltaOffset, end: DeltaOffset) -> DeltaOffset:
        """Behind the last row of a batch is before the first of the next."""
        whole = at.row >= self._spool.batches[at.version].rows
        return min(end, batch_start(at.version + 1)) if whole else at
