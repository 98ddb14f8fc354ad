"""The fused task: fetch, decode, shape and write in one pass over Arrow, on a worker.

Nothing here touches a table's log. A task may run twice or die at any line: its files belong to no table
until the driver commits them.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from lakefeed.columns.column_types import stored
from lakefeed.columns.widening import merge_proposals
from lakefeed.engine.batch.manifest import MOST_SAMPLES, Manifest, TableManifest, listed
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.batch.routed_writers import RoutedWriters
from lakefeed.engine.defects import defect_of
from lakefeed.engine.faultpoints import passing
from lakefeed.engine.run_events import DeadLetterSample
from lakefeed.errors import LakefeedError, TableError
from lakefeed.events import Events, OffsetRange, Refused
from lakefeed.files.names import Serial
from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.files.partitions import without_place
from lakefeed.formats import Decoded, Decoder, Rules
from lakefeed.formats.refusal import TYPE_CHANGES
from lakefeed.handles.table_plan import TableId, TablePlan
from lakefeed.pipeline.options.evolve import RESCUED
from lakefeed.rows.dead_letter import DEAD_LETTER_SCHEMA, dead_letters, preview
from lakefeed.rows.metadata import add_metadata
from lakefeed.rows.partition import add_partition_columns
from lakefeed.rows.rename import as_in_events, as_in_table
from lakefeed.stores import open_store

_NO_COLUMNS = pa.schema([])
_LONGEST_REASON = 300
_SAMPLES_OF_A_REASON = 3
_MOST_WAITING = 128 * 2**20
"""Bytes of rows that wait to be written, in all tables of a task together."""


def run_task(
    plan: FlowPlan,
    ranges: Sequence[OffsetRange],
    given: Iterable[Events] | None = None,
    serial: Serial | None = None,
) -> Manifest:
    """Read the ranges and write what becomes of them. Errors of the source come back in the manifest.

    Events that are `given` need not be read: dead letters have theirs with them.
    """
    passing("task_started")
    manifest = Manifest(list(ranges), read={span.partition: 0 for span in ranges})
    lanes = [_Lane(plan, table, ranges, serial) for table in plan.tables if table.takes_rows(ranges[0])]
    largest = 0
    try:
        for events in plan.source.read(ranges) if given is None else given:
            _take(lanes, events)
            if sum(lane.waiting_bytes for lane in lanes) > _MOST_WAITING:
                for lane in lanes:
                    lane.flush()
            for partition, count in events.counts().items():
                manifest.read[partition] += count
            sizes = list(map(len, filter(None, events.payloads)))
            manifest.bytes_read += sum(sizes)
            # One large event cannot be parted, so it does not count.
            largest = max(largest, max(sizes, default=0))
            if plan.most_bytes and given is None and manifest.bytes_read - largest > plan.most_bytes:
                for lane in lanes:
                    lane.drop_files()
                return replace(manifest, tables={}, overfull=True)
        for lane in lanes:
            manifest.tables |= lane.close()
    except BaseException as error:
        for lane in lanes:
            lane.drop_files()
        if isinstance(error, LakefeedError):
            return Manifest(list(ranges), error=error)
        # What the machine refuses is no defect, and neither is being killed.
        if isinstance(error, OSError | MemoryError) or not isinstance(error, Exception):
            raise
        return Manifest(list(ranges), error=defect_of(error, f"took {listed(ranges)}"))
    passing("task_written")
    return manifest


def _take(lanes: list[_Lane], events: Events) -> None:
    """Decode once for all tables that want the same columns."""
    decoded: dict[tuple[pa.Schema, Rules], Decoded] = {}
    newest = events.newest()
    for lane in lanes:
        if lane.wants not in decoded:
            decoded[lane.wants] = lane.decoder.decode(events.payloads)
        lane.take(events, decoded[lane.wants])
        lane.note(newest)


class _Lane:
    """One table's way through a task: its rows, and its dead letters."""

    def __init__(
        self, plan: FlowPlan, table: TablePlan, ranges: Sequence[OffsetRange], serial: Serial | None
    ) -> None:
        self.table = table
        self._serial = serial
        columns = _NO_COLUMNS if table.columns is None else as_in_events(table.columns, table.rename)
        # What the table has and `drop` names since is null from now on.
        self._dropped = [field for field in columns if field.name in table.rules.dropped]
        columns = pa.schema([field for field in columns if field.name not in table.rules.dropped])
        self.wants = columns, table.rules
        self.decoder: Decoder = plan.format.decoder(columns, table.rules)
        self._plan = plan
        self._pending = {
            (span.partition, offset, moment)
            for span in ranges
            for offset, moment in table.pending.get(span.partition, ())
            if span.start <= offset < span.end
        }
        self._dead_at = dt.datetime.now(dt.UTC)
        self._rows: TableWriter | None = None
        self._routes = RoutedWriters(table, ranges, serial) if table.route else None
        self._dead_letters: TableWriter | None = None
        self._result = TableManifest(TableId(table.name))

    def take(self, events: Events, decoded: Decoded) -> None:
        if self._result.error:
            return
        try:
            before = self._dead_before(events) if self._pending else set()
            if before:
                decoded = self._without(before, events, decoded)
            if decoded.refused:
                self._refuse(events, decoded.refused)
            if decoded.skipped:
                _count(self._result.skipped, events, decoded.skipped)
            if decoded.unknown is not None:
                self._propose(as_in_table(decoded.unknown, self.table.rename))
            if self.table.columns is None:
                self._result.without_columns += decoded.rows.num_rows
            elif self._result.proposal is None and decoded.rows.num_rows:
                self._write(events, decoded, before)
        except TableError as error:
            self._fail(error)

    @property
    def waiting_bytes(self) -> int:
        """What the table holds in memory: its rows, or those of all tables of its route, and its letters."""
        return sum(writer.waiting_bytes for writer in self._writers())

    def flush(self) -> None:
        """Write what is held. All tables do so together, as one's rows are slices of what others hold."""
        try:
            for writer in self._writers():
                writer.flush()
        except TableError as error:
            self._fail(error)

    def _writers(self) -> list[TableWriter | RoutedWriters]:
        return [writer for writer in (self._rows, self._dead_letters, self._routes) if writer]

    def note(self, newest: float | None) -> None:
        """Keep the time of the newest event, for those who ask how fresh the table is."""
        if newest is not None:
            self._result.newest = max(newest, self._result.newest or newest)

    def close(self) -> dict[TableId, TableManifest]:
        routed: Mapping[TableId, TableManifest] = {}
        try:
            self._result.files = self._rows.close() if self._rows else []
            if self._routes and not self._result.error:
                routed = self._routes.close()
            self._result.dead_letter_files = self._dead_letters.close() if self._dead_letters else []
        except TableError as error:
            self._fail(error)
            routed = {}
        return {self._result.table: self._result, **routed}

    def drop_files(self) -> None:
        """A table that must change first, or cannot be written, gets nothing of this task."""
        for writer in self._writers():
            writer.abort()
        self._rows = self._dead_letters = None

    def _fail(self, error: TableError) -> None:
        self.drop_files()
        self._result = TableManifest(TableId(self.table.name), error=error)

    def _propose(self, unknown: pa.Schema) -> None:
        known = self._result.proposal
        self._result.proposal = unknown if known is None else merge_proposals(known, unknown)
        for writer in (self._rows, self._routes):
            if writer:
                writer.abort()
        self._rows = None

    def _dead_before(self, events: Events) -> set[int]:
        """The indexes of events that are dead letters already."""
        name, origin = self._plan.source.partition_of, events.origin()
        topics, numbers, offsets = (origin.column(at).to_pylist() for at in ("topic", "partition", "offset"))
        moments = origin.column("timestamp").cast(pa.int64()).to_pylist()
        partitions = map(name, topics, numbers)
        places = zip(partitions, offsets, moments, strict=True)
        found = {at for at, handle in enumerate(places) if handle in self._pending}
        _count(self._result.dead_letters, events, sorted(found))
        return found

    def _without(self, before: set[int], events: Events, decoded: Decoded) -> Decoded:
        """Leave out dead letters, whether they would be rows by now or be refused again."""
        kept = _kept(len(events.payloads), _gone(decoded))
        new = pa.array([index not in before for index in kept], pa.bool_())
        return Decoded(
            decoded.rows.filter(new),
            [one for one in decoded.refused if one.index not in before],
            decoded.unknown,
            None if decoded.rescued is None else decoded.rescued.filter(new),
            [index for index in decoded.skipped if index not in before],
        )

    def _refuse(self, events: Events, refused: list[Refused]) -> None:
        if self.table.rules.type_change == "fail":
            self._stop_at_type_change(events, refused)
        indexes = [one.index for one in refused]
        _count(self._result.dead_letters, events, indexes)
        plan = self._plan
        if self._dead_letters is None:
            store = open_store(plan.dead_letters_path, dict(plan.dead_letters_storage))
            self._dead_letters = TableWriter(store, FileTarget(DEAD_LETTER_SCHEMA, sync=plan.sync))
        payloads = [events.payloads[index] for index in indexes]
        origin = events.origin(indexes)
        self._tell(refused, origin, payloads)
        self._dead_letters.write(
            dead_letters(
                plan.pipeline, plan.source_name, self.table.name, refused, origin, payloads, self._dead_at
            )
        )

    def _stop_at_type_change(self, events: Events, refused: list[Refused]) -> None:
        changed = next((one for one in refused if one.code in TYPE_CHANGES), None)
        if changed:
            origin = events.origin([changed.index]).to_pylist()[0]
            where = f"{origin['topic'] or self._plan.source_name}, partition {origin['partition']}"
            raise TableError(
                f"table {self.table.name}: the event at offset {origin['offset']} of {where} "
                f"does not fit and `evolve.type_change` is fail: {changed.error}.\n"
                "Correct `schema` or the producer, or choose another rule, then start again."
            )

    def _tell(self, refused: list[Refused], origin: pa.RecordBatch, payloads: Sequence[bytes | None]) -> None:
        """Count the reasons, and keep a few of them word for word."""
        for one in refused:
            reason = f"{one.stage}/{one.code}"
            self._result.refusals[reason] = self._result.refusals.get(reason, 0) + 1
        kept = Counter((one.stage, one.code) for one in self._result.samples)
        for index, one in enumerate(refused):
            if len(self._result.samples) >= MOST_SAMPLES:
                return
            reason_of = (one.stage, one.code)
            if kept[reason_of] < _SAMPLES_OF_A_REASON:
                kept[reason_of] += 1
                self._result.samples.append(self._sample(one, origin.slice(index, 1), payloads[index]))

    def _sample(self, one: Refused, origin: pa.RecordBatch, payload: bytes | None) -> DeadLetterSample:
        (at,) = origin.select(["topic", "partition", "offset"]).to_pylist()
        partition = self._plan.source.partition_of(at["topic"], at["partition"])
        text = one.error[:_LONGEST_REASON].encode("utf-8", "replace").decode()
        return DeadLetterSample(partition, at["offset"], one.stage, one.code, text, preview(payload))

    def _write(self, events: Events, decoded: Decoded, before: set[int]) -> None:
        table, rows = self.table, decoded.rows
        for field in stored(pa.schema(self._dropped)):
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        if table.rename:
            rows = rows.rename_columns(as_in_table(rows.schema, table.rename).names)
        if table.rescues:
            rescued = pa.nulls(len(rows), pa.string()) if decoded.rescued is None else decoded.rescued
            rows = rows.append_column(RESCUED, rescued)
        gone = _gone(decoded) | before
        if table.metadata:
            origin = events.origin(_kept(len(events.payloads), gone) if gone else None)
            rows = add_metadata(rows, origin, table.metadata)
        if table.partition_by:
            rows = add_partition_columns(rows, table.partition_by)
            rows, gone = self._placed(events, rows, gone)
        if self._routes:
            refused = self._routes.write(rows, _kept(len(events.payloads), gone))
            return self._refuse(events, refused) if refused else None
        assert table.target is not None
        if self._rows is None:
            self._rows = TableWriter(open_store(table.path, dict(table.storage)), table.target, self._serial)
        self._rows.write(rows)
        return None

    def _placed(
        self, events: Events, rows: pa.RecordBatch, gone: set[int]
    ) -> tuple[pa.RecordBatch, set[int]]:
        """The rows that a partition can hold; the others become dead letters."""
        assert self.table.columns is not None
        unplaced = without_place(rows, self.table.columns, (one.name for one in self.table.partition_by))
        if not unplaced:
            return rows, gone
        kept = _kept(len(events.payloads), gone)
        refused = [replace(why, index=kept[at]) for at, why in sorted(unplaced.items())]
        self._refuse(events, refused)
        fitting = pa.array([at not in unplaced for at in range(rows.num_rows)], pa.bool_())
        return rows.filter(fitting), gone | {one.index for one in refused}


def _gone(decoded: Decoded) -> set[int]:
    """The indexes of the events that are no rows."""
    return {one.index for one in decoded.refused} | set(decoded.skipped)


def _count(counts: dict[str, int], events: Events, indexes: list[int]) -> None:
    for partition, count in events.counts(indexes).items():
        counts[partition] = counts.get(partition, 0) + count


def _kept(count: int, gone: set[int]) -> Sequence[int]:
    """The indexes of the events that became rows."""
    return [index for index in range(count) if index not in gone] if gone else range(count)
