"""Postgres as the driver sees it: what the slot and the WAL have, where a batch ends, what a task reads."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from lakefeed.errors import DataLoss, SourceUnavailable
from lakefeed.events import EPOCH, OffsetRange, Offsets, Outstanding, Split
from lakefeed.sources import Allowance, Finding, SourceClient
from lakefeed.sources.postgres.checks.findings import findings, tell_findings
from lakefeed.sources.postgres.checks.losses import halfway, loss, refuse_older_server, refuse_other_server
from lakefeed.sources.postgres.checks.marks import Marks, refuse_lost_timeline, tell_rewritten
from lakefeed.sources.postgres.checks.shared_columns import key_problem, type_problem
from lakefeed.sources.postgres.connection import Connection, connect, postgres_errors, where
from lakefeed.sources.postgres.positions import (
    ALL_ROWS,
    changes_of,
    is_rows,
    partition_name,
    rows_of,
    stream_of,
)
from lakefeed.sources.postgres.relations import TableInfo, matching, tables_of
from lakefeed.sources.postgres.replication.lag import SeenEnds
from lakefeed.sources.postgres.replication.publication import Published, make_publication, published_of
from lakefeed.sources.postgres.replication.slot import Acknowledger, Slot, make_slot, slot_named
from lakefeed.sources.postgres.snapshot.chunk import AGAIN, Chunk
from lakefeed.sources.postgres.snapshot.plan import SnapshotPart, conditions, plan_part, wal_end
from lakefeed.sources.postgres.snapshot.progress import Progress
from lakefeed.sources.postgres.source import PostgresSource
from lakefeed.sources.postgres.values.stored_defaults import stored_defaults

_log = logging.getLogger("lakefeed")
_BYTES_OF_A_CHANGE = 200
"""What a change is taken to need in the WAL."""
_LOOK_EVERY = 5.0
_SAMPLE_ROWS = 1000
_SMALL_BACKLOG = 64 * 2**20


class PostgresClient(SourceClient):
    """What the server has. Makes publication and slot only after `prepare`, which a run calls."""

    def __init__(self, source: PostgresSource, pipeline: str, name: str) -> None:
        self._source, self._name = source, name
        self.publication, self.slot = source.named(pipeline, name)
        self._connection: Connection | None = None
        self._makes = False
        self._tables: dict[str, TableInfo] = {}
        self._looked = -_LOOK_EVERY
        self._marks, self._progress, self._seen = Marks(), Progress(), SeenEnds()
        self._slot: Slot | None = None
        self._position: Offsets = {}
        self._part: SnapshotPart | None = None
        self._told_columns: set[str] = set()
        self._published: dict[str, Published] = {}
        self._acknowledger = Acknowledger(source, name, self.slot)

    def begin(self) -> None:
        """Make the publication, which must be there before the slot; the slot is made when a table begins."""
        self._makes = True
        with self._asking() as connection:
            tell_findings(self._name, self.findings(), self.takes)
            if self._source.snapshot == "only" and self._source.tables:
                # Nobody is sent changes.
                return
            for statement in make_publication(connection, self._source, self.publication):
                _log.info("source %s: %s", self._name, statement)
            self._looked = -_LOOK_EVERY

    def findings(self) -> list[Finding]:
        """What keeps the tables from being read, with the statement that repairs it."""
        with self._asking() as connection:
            given = (self.publication, self.slot, self._source.tables)
            return findings(connection, *given, rows_only=self._source.snapshot == "only")

    def key_problem(self, keys: Sequence[str], takes: Callable[[str], bool]) -> str | None:
        """A key of the file that is not the key of the table, or a table that has none."""
        with self._asking() as connection:
            return key_problem(connection, self._taken(connection, takes), keys)

    def type_problem(self, takes: Callable[[str], bool], table_of: Callable[[str], str | None]) -> str | None:
        """A column that has another type in each of two tables."""
        with self._asking() as connection:
            return type_problem(connection, self._taken(connection, takes), table_of)

    def _taken(self, connection: Connection, takes: Callable[[str], bool]) -> dict[str, TableInfo]:
        self._look(connection)
        return {stream: table for stream, table in self._tables.items() if takes(stream)}

    def stored_defaults(self, takes: Callable[[str], bool]) -> dict[str, pa.Scalar]:
        """What the catalog has for rows from before a column came."""
        tables = [one for stream, one in self._tables.items() if takes(stream)]
        if len(tables) != 1:
            return {}
        with self._asking() as connection:
            return stored_defaults(connection, self.publication, tables[0].stream, tables[0].oid)

    def start(self) -> Offsets:
        """From where the slot begins; the slot is made here."""
        with self._asking() as connection:
            at = wal_end(connection)
            if self._source.snapshot != "only":
                slot = slot_named(connection, self.slot)
                if self._makes and (slot is None or slot.status == "lost"):
                    slot = make_slot(connection, self.slot)
                at = slot.confirmed if slot else at
            return self._offsets(connection, at, 0)

    def latest(self) -> Offsets:
        """The end of the WAL that is on disk, for every table."""
        with self._asking() as connection:
            end = wal_end(connection)
            self._seen.add(end)
            return self._offsets(connection, end, ALL_ROWS)

    def rows_between(self, position: Offsets, ends: Offsets) -> dict[str, int]:
        """Guesses: by bytes of WAL, and by what the statistics of a table say."""
        return {name: self._between(name, at, ends.get(name, at)) for name, at in position.items()}

    def outstanding(self, position: Offsets, ends: Offsets) -> Outstanding:
        """Bytes of WAL that wait, that the slot keeps, and that may come until the server gives it up."""
        lsns = {name: at for name, at in ends.items() if not is_rows(name)}
        end = max(lsns.values(), default=0)
        first = min((position.get(name, at) for name, at in lsns.items()), default=0)
        known: dict[str, Any] = {
            "bytes": max(0, end - first),
            "seconds": self._seen.seconds_behind(first, end) if self._makes else None,
            "copied": self._progress.copied(self._tables, position),
        }
        if self._slot is not None:
            known |= {"retained": max(0, end - self._slot.restart), "headroom": self._slot.headroom}
        return Outstanding(None, **known)

    def next_end(self, position: Offsets, ends: Offsets, allowed: Allowance) -> Offsets:
        """Some bytes of WAL further; with the next rows of a snapshot, at the end of the WAL of now."""
        self._position = dict(position)
        under = self._part if self._source.snapshot == "only" else None
        if under is None:
            self._close_part()
        streams = [name for name in position if not is_rows(name)]
        pending = {
            name: at
            for name, at in position.items()
            if is_rows(name) and at < min(ALL_ROWS, ends.get(name, 0))
        }
        first = min((position[name] for name in streams), default=0)
        last = max((ends.get(name, 0) for name in streams), default=0)
        if pending and (last - first <= _SMALL_BACKLOG or not self._makes):
            with self._asking() as connection:
                beyond = max((position[name] for name in streams), default=0)
                tables = {stream_of(name): self._tables[stream_of(name)] for name in pending}
                for table in tables.values():
                    self._progress.look(connection, table)
                self._part = plan_part(
                    self._source, self.publication, tables, pending, beyond, allowed.rows, under
                )
            end = {name: max(at, self._part.end) if name in streams else at for name, at in position.items()}
            if not self._makes:
                end = dict(position)
            return end | {name: chunk.end for name, chunk in self._part.chunks.items()}
        fitting = first + max(allowed.bytes, _BYTES_OF_A_CHANGE * 1000)
        return {
            name: at if is_rows(name) else max(at, min(ends.get(name, at), fitting))
            for name, at in position.items()
        }

    def splits(self, ranges: Sequence[OffsetRange], cores: int) -> list[Split]:
        """One task for changes, as one reader has the slot; rows of a snapshot are shared out."""
        changes = [self._changes(one, ranges) for one in ranges if not is_rows(one.partition)]
        tasks: list[list[OffsetRange]] = [changes] if changes else []
        for span in (one for one in ranges if is_rows(one.partition)):
            parts = self._rows(span, cores)
            chunk = self._chunk_of(span.partition)
            if chunk.is_part and changes:
                # Rows behind a truncation of the same batch come after it.
                tasks[0] += parts
            else:
                tasks += [[one] for one in parts]
        if self._source.snapshot_rate:
            copies = [one for task in tasks for one in task if is_rows(one.partition)]
            for one in copies:
                one.payload["rate"] = max(1, self._source.snapshot_rate // min(cores, len(copies)))
        return [tuple(task) for task in tasks]

    def strand(self, position: Offsets) -> Hashable:
        """Tables inside of a snapshot are read together only where they are at the same position."""
        open_at = {name: at for name, at in position.items() if is_rows(name) and at < ALL_ROWS}
        if not open_at:
            return None
        if len(open_at) == 1:
            (name, at), *_ = open_at.items()
            return at, position.get(changes_of(name))
        return tuple(sorted(position.items()))

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Refuse to go on where the slot no longer has what a table needs next, or another server answers."""
        with self._asking() as connection:
            slot = slot_named(connection, self.slot)
            end = wal_end(connection)
            self._look(connection)
            self._compare(positions, marks)
            for name in (name for name, at in positions.items() if is_rows(name) and at < ALL_ROWS):
                if (table := self._tables.get(stream_of(name))) is not None:
                    self._progress.look(connection, table)
            held = [
                at for name, at in positions.items() if not is_rows(name) and stream_of(name) in self._tables
            ]
            lost = None
            if held and self._source.snapshot != "only":
                refuse_older_server(self._name, where(self._source), max(held), end)
                lost = loss(self.slot, slot, min(held))
            if lost and (self._source.on_slot_loss == "fail" or self._source.snapshot == "never"):
                raise DataLoss(f"source {self._name}: {lost}")
            if lost and self._makes:
                _log.warning("source %s: %s The rows are read anew.", self._name, lost.splitlines()[0])
                if slot is None or slot.status == "lost":
                    slot = make_slot(connection, self.slot)
            fresh = self._offsets(connection, slot.confirmed if slot else end, AGAIN if lost else 0)
        if lost:
            return fresh
        # A table that is not published any more has nothing to read.
        found = {name: positions.get(name, at) for name, at in fresh.items()}
        return found | {name: AGAIN for name in found if self._is_read_anew(name, positions)}

    def acknowledge(self, positions: Offsets) -> None:
        """Let the server forget the WAL that no table needs."""
        streams = [partition_name(one) for one in self._tables]
        if streams and all(one in positions for one in streams) and self._source.snapshot != "only":
            copied = all(at >= ALL_ROWS for name, at in positions.items() if is_rows(name))
            self._acknowledger.move(min(positions[one] for one in streams), seen=not copied)

    def marks(self) -> dict[str, int]:
        """Which server, table and timeline the positions are of; see `Marks`."""
        if self._looked < 0:
            with self._asking() as connection:
                self._look(connection)
        return self._marks.all()

    def close(self) -> None:
        """Let go of the connections."""
        self._acknowledger.close()
        self._close_part()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _compare(self, positions: Offsets, marks: Mapping[str, int]) -> None:
        """Compare the marks that a table holds with those of now."""
        own = self.marks()
        refuse_other_server(self._name, where(self._source), self.publication, own, marks)
        known = {name: at for name, at in positions.items() if stream_of(name) in self._tables}
        if self._source.snapshot != "only":
            refuse_lost_timeline(self._name, self._source, known, marks, own)
        for stream in {stream_of(name) for name in known} if self._makes else ():
            name = partition_name(stream, rows=True) + EPOCH
            if not self._source.is_read_anew(stream, positions.get(partition_name(stream), 0)):
                tell_rewritten(self._name, stream, marks.get(name), own.get(name))

    def _between(self, name: str, at: int, end: int) -> int:
        if end <= at:
            return 0
        if is_rows(name):
            table = self._tables.get(stream_of(name))
            return self._progress.left(table, at) if table else 1
        return max(1, (end - at) // _BYTES_OF_A_CHANGE)

    def _changes(self, span: OffsetRange, ranges: Sequence[OffsetRange]) -> OffsetRange:
        rows = rows_of(span.partition)
        chunk = self._chunk_of(rows)
        if chunk.end > chunk.start:
            read = {one.partition: (one.start, one.end) for one in ranges}
            if read.get(rows) != (chunk.start, chunk.end) or self._part is None or span.end != self._part.end:
                raise halfway(self._name, stream_of(rows))
        table = self._tables[stream_of(span.partition)]
        payload = {
            "slot": self.slot,
            "publication": self.publication,
            "keys": list(table.keys),
            "chunk": asdict(chunk),
            "shown": self._shown(table),
        }
        return OffsetRange(span.partition, span.start, span.end, payload)

    def _shown(self, table: TableInfo) -> tuple[int, tuple[str, ...] | None] | None:
        """What a task needs to tell the columns of a table, with the first batch; None behind it.

        A Delta table is made of them: without one, a table that nobody writes to would hold the slot.
        """
        if table.stream in self._told_columns:
            return None
        if table.stream not in self._published:
            with self._asking() as connection:
                self._published = published_of(connection, self.publication)
        self._told_columns.add(table.stream)
        known = self._published.get(table.stream, Published())
        return table.oid, known.columns

    def _chunk_of(self, rows: str) -> Chunk:
        """What is read of the rows of a table in the batch."""
        found = self._part.chunks.get(rows) if self._part else None
        at = self._position.get(rows, ALL_ROWS)
        return found or Chunk(at, at, self._tables[stream_of(rows)].chunks if at < ALL_ROWS else None)

    def _rows(self, span: OffsetRange, cores: int) -> list[OffsetRange]:
        assert self._part is not None
        table, chunk = self._tables[stream_of(span.partition)], self._part.chunks[span.partition]
        limit = None if self._makes else _SAMPLE_ROWS
        asked = conditions(self._part.connection, chunk, table, 1 if limit else cores)
        edges = [span.start, *(start for start, _ in asked[1:]), span.end]
        lsn = self._position.get(changes_of(span.partition), self._part.end)
        if span.start < AGAIN and self._slot is not None:
            # Below every change that the slot still has: some of them may belong to these rows.
            lsn = min(lsn, self._slot.confirmed)
        found = []
        for (_, condition), start, end in zip(asked, edges, edges[1:], strict=False):
            part = OffsetRange(span.partition, start, end)
            rows = self._part.rows(part, table, lsn, condition, limit)
            payload = asdict(rows) | {"shows": span.start <= AGAIN}
            found.append(OffsetRange(span.partition, start, end, payload))
        return found

    def _offsets(self, connection: Connection, changes: int, rows: int) -> Offsets:
        self._look(connection)
        found: Offsets = {}
        for stream in self._tables:
            name = partition_name(stream)
            if self._source.snapshot != "only":
                found[name] = changes
            if self._source.snapshot != "never":
                found[rows_of(name)] = rows
        return found

    def _look(self, connection: Connection) -> None:
        """Look for tables now and then."""
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        self._slot = slot_named(connection, self.slot)
        there = tables_of(connection, self.publication)
        names = sorted(published_of(connection, self.publication))
        if self._source.tables:
            # What is not published yet shows in `plan`; a run has made the publication before.
            makes = self._makes and self._source.snapshot != "only"
            known = names if makes else sorted({*names, *there})
            above = {name: there[name].ancestors for name in known if name in there}
            names = matching(above, self._source.tables)
        self._tables = {name: there[name] for name in names if name in there and self.takes(name)}
        self._marks.look(connection, self._tables)

    def _is_read_anew(self, name: str, positions: Offsets) -> bool:
        at = positions.get(changes_of(name))
        return is_rows(name) and at is not None and self._source.is_read_anew(stream_of(name), at)

    def streams(self) -> list[str]:
        """The tables that there are."""
        with self._asking() as connection:
            self._look(connection)
        return list(self._tables)

    def now(self) -> int:
        """The end of the WAL."""
        with self._asking() as connection:
            return wal_end(connection)

    def _close_part(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part = None

    @contextmanager
    def _asking(self) -> Iterator[Connection]:
        """The connection, made anew after it broke."""
        try:
            if self._connection is None or self._connection.broken or self._connection.closed:
                self._connection = connect(self._source, connect_timeout=max(2, int(self.patience)))
            with postgres_errors(self._source):
                yield self._connection
        except SourceUnavailable as error:
            raise SourceUnavailable(f"source {self._name}: {error}") from error
