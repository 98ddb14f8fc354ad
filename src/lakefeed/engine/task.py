"""The fused task: fetch, decode, shape and write in one pass over Arrow, on a worker.

Nothing here touches a table's log. A task may run twice or die at any line: its files belong to no table
until the driver commits them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa

from lakefeed.engine.faultpoints import passing
from lakefeed.engine.manifest import Manifest, TableManifest
from lakefeed.engine.plan import FlowPlan, TablePlan
from lakefeed.errors import LakefeedError, TableError
from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.formats import Decoded, Decoder, Refused
from lakefeed.pipeline.widening import merge_proposals
from lakefeed.rows.letters import DEAD_LETTER_SCHEMA, dead_letters
from lakefeed.rows.metadata import add_metadata
from lakefeed.rows.partition import add_partition_columns
from lakefeed.sources import Events, OffsetRange
from lakefeed.stores import open_store

_NO_COLUMNS = pa.schema([])


def run_task(plan: FlowPlan, ranges: Sequence[OffsetRange]) -> Manifest:
    """Read the ranges and write what becomes of them. Errors of the source come back in the manifest."""
    passing("task_started")
    manifest = Manifest(read={span.partition: 0 for span in ranges})
    lanes = [_Lane(plan, table, ranges) for table in plan.tables if table.takes_rows(ranges[0])]
    try:
        for events in plan.source.read(ranges):
            _take(lanes, events)
            for partition, count in events.counts().items():
                manifest.read[partition] += count
            manifest.bytes_read += sum(map(len, filter(None, events.payloads)))
        manifest.tables = {lane.table.name: lane.close() for lane in lanes}
    except BaseException as error:
        for lane in lanes:
            lane.drop_files()
        if isinstance(error, LakefeedError):
            return Manifest(error=error)
        raise
    passing("task_written")
    return manifest


def _take(lanes: list[_Lane], events: Events) -> None:
    """Decode once for all tables that want the same columns."""
    decoded: dict[pa.Schema, Decoded] = {}
    for lane in lanes:
        if lane.columns not in decoded:
            decoded[lane.columns] = lane.decoder.decode(events.payloads)
        lane.take(events, decoded[lane.columns])


class _Lane:
    """One table's way through a task: its rows, and its dead letters."""

    def __init__(self, plan: FlowPlan, table: TablePlan, ranges: Sequence[OffsetRange]) -> None:
        self.table = table
        self.columns = _NO_COLUMNS if table.columns is None else table.columns
        self.decoder: Decoder = plan.format.decoder(self.columns)
        self._plan = plan
        self._lettered = {
            (span.partition, offset, moment)
            for span in ranges
            for offset, moment in table.lettered.get(span.partition, ())
            if span.start <= offset < span.end
        }
        self._dead_at = dt.datetime.now(dt.UTC)
        self._rows: TableWriter | None = None
        self._letters: TableWriter | None = None
        self._result = TableManifest(table.name)

    def take(self, events: Events, decoded: Decoded) -> None:
        if self._result.error:
            return
        try:
            before = self._dead_before(events) if self._lettered else set()
            if before:
                decoded = self._without(before, events, decoded)
            if decoded.refused:
                self._refuse(events, decoded.refused)
            if decoded.skipped:
                _count(self._result.skipped, events, decoded.skipped)
            if decoded.unknown is not None:
                self._propose(decoded.unknown)
            if self.table.columns is None:
                self._result.blank += decoded.rows.num_rows
            elif self._result.proposal is None and decoded.rows.num_rows:
                self._write(events, decoded, before)
        except TableError as error:
            self._fail(error)

    def close(self) -> TableManifest:
        try:
            self._result.files = self._rows.close() if self._rows else []
            self._result.letter_files = self._letters.close() if self._letters else []
        except TableError as error:
            self._fail(error)
        return self._result

    def drop_files(self) -> None:
        """A table that must change first, or cannot be written, gets nothing of this task."""
        for writer in (self._rows, self._letters):
            if writer:
                writer.abort()
        self._rows = self._letters = None

    def _fail(self, error: TableError) -> None:
        self.drop_files()
        self._result = TableManifest(self.table.name, error=error)

    def _propose(self, unknown: pa.Schema) -> None:
        known = self._result.proposal
        self._result.proposal = unknown if known is None else merge_proposals(known, unknown)
        if self._rows:
            self._rows.abort()
            self._rows = None

    def _dead_before(self, events: Events) -> set[int]:
        """The indexes of events that are dead letters already."""
        name, origin = self._plan.source.partition_of, events.origin()
        topics, numbers, offsets = (origin.column(at).to_pylist() for at in ("topic", "partition", "offset"))
        moments = origin.column("timestamp").cast(pa.int64()).to_pylist()
        partitions = map(name, topics, numbers)
        places = zip(partitions, offsets, moments, strict=True)
        found = {at for at, place in enumerate(places) if place in self._lettered}
        _count(self._result.letters, events, sorted(found))
        return found

    def _without(self, before: set[int], events: Events, decoded: Decoded) -> Decoded:
        """Leave out dead letters, whether they would be rows by now or be refused again."""
        kept = _kept(len(events.payloads), _gone(decoded))
        rows = decoded.rows.filter(pa.array([index not in before for index in kept], pa.bool_()))
        refused = [one for one in decoded.refused if one.index not in before]
        skipped = [index for index in decoded.skipped if index not in before]
        return Decoded(rows, refused, decoded.unknown, skipped=skipped)

    def _refuse(self, events: Events, refused: list[Refused]) -> None:
        indexes = [one.index for one in refused]
        _count(self._result.letters, events, indexes)
        plan = self._plan
        if self._letters is None:
            store = open_store(plan.letters_path, dict(plan.letters_storage))
            self._letters = TableWriter(store, FileTarget(DEAD_LETTER_SCHEMA))
        payloads = [events.payloads[index] for index in indexes]
        origin = events.origin(indexes)
        self._letters.write(
            dead_letters(
                plan.pipeline, plan.source_name, self.table.name, refused, origin, payloads, self._dead_at
            )
        )

    def _write(self, events: Events, decoded: Decoded, before: set[int]) -> None:
        table, rows = self.table, decoded.rows
        assert table.target is not None
        if table.metadata:
            gone = _gone(decoded) | before
            rows = add_metadata(rows, events.origin(_kept(len(events.payloads), gone) if gone else None))
        if table.partition_by:
            rows = add_partition_columns(rows, table.partition_by)
        if self._rows is None:
            self._rows = TableWriter(open_store(table.path, dict(table.storage)), table.target)
        self._rows.write(rows)


def _gone(decoded: Decoded) -> set[int]:
    """The indexes of the events that are no rows."""
    return {one.index for one in decoded.refused} | set(decoded.skipped)


def _count(counts: dict[str, int], events: Events, indexes: list[int]) -> None:
    for partition, count in events.counts(indexes).items():
        counts[partition] = counts.get(partition, 0) + count


def _kept(count: int, gone: set[int]) -> list[int]:
    """The indexes of the events that became rows."""
    return [index for index in range(count) if index not in gone]
