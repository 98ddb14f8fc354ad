"""Postgres as the driver sees it: what the slot and the WAL have, where a batch ends, what a task reads."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import psycopg
import pyarrow as pa

from lakefeed.columns.names import clean_column_name
from lakefeed.errors import DataLoss, SourceUnavailable, StreamsLost
from lakefeed.events import EPOCH, OffsetRange, Offsets, Outstanding, PartRead, Split
from lakefeed.sources import Allowance, Finding, SourceClient
from lakefeed.sources.postgres.checks.arriving import Arrivals
from lakefeed.sources.postgres.checks.blockers import lock_holder, locked
from lakefeed.sources.postgres.checks.findings import findings, tell_findings, unreserved
from lakefeed.sources.postgres.checks.losses import (
    halfway,
    other_key_text,
    passed_text,
    recreated_text,
    refuse_older_server,
    refuse_other_server,
    slot_loss,
)
from lakefeed.sources.postgres.checks.lost_columns import LostColumns
from lakefeed.sources.postgres.checks.marks import Marks, refuse_lost_timeline
from lakefeed.sources.postgres.checks.shared_columns import key_problems, type_problem
from lakefeed.sources.postgres.checks.unreadable import Chosen, choose
from lakefeed.sources.postgres.connection import Connection, connect, one_row, postgres_errors, where
from lakefeed.sources.postgres.positions import (
    AGAIN,
    ALL_ROWS,
    changes_of,
    is_rows,
    partition_name,
    rows_of,
    stream_of,
)
from lakefeed.sources.postgres.relations import TableInfo, tables_of
from lakefeed.sources.postgres.replication.lag import SeenEnds
from lakefeed.sources.postgres.replication.names import claim, owner_text, settled_names
from lakefeed.sources.postgres.replication.publication import (
    Published,
    publication_state,
    publish,
    published_of,
)
from lakefeed.sources.postgres.replication.slot import Acknowledger, Slot, make_slot, slot_named
from lakefeed.sources.postgres.snapshot.chunk import Chunk
from lakefeed.sources.postgres.snapshot.plan import (
    SnapshotPart,
    conditions,
    plan_part,
    wal_end,
)
from lakefeed.sources.postgres.snapshot.progress import Progress
from lakefeed.sources.postgres.snapshot.rows import no_events, relation_of
from lakefeed.sources.postgres.source import PostgresSource, is_pattern, matches
from lakefeed.sources.postgres.values.column_names import event_name
from lakefeed.sources.postgres.values.stored_defaults import stored_defaults
from lakefeed.sources.postgres.values.table_columns import TableColumns
from lakefeed.sources.postgres.values.type_catalog import TypeCatalog

_log = logging.getLogger("lakefeed")
_BYTES_OF_A_CHANGE = 200
"""What a change is taken to need in the WAL."""
_LOOK_EVERY = 5.0
_LOCK_SECONDS = 3
"""How long a statement of the driver waits for a lock before it says who holds it."""
_PUBLISH_SECONDS = 0.3
"""How long it waits in a run that goes on for a lock of a table to publish: the others are not read then."""
_WAIT_SECONDS = 3.0
"""How long a run that ends by itself waits for open transactions before it says for which."""
_SAMPLE_ROWS = 1000
_SMALL_BACKLOG = 64 * 2**20


class PostgresClient(SourceClient):
    """What the server has. Makes publication and slot only after `prepare`, which a run calls."""

    def __init__(self, source: PostgresSource, pipeline: str, name: str) -> None:
        self._source, self._name = source, name
        self._pipeline = pipeline
        self.publication, self.slot = source.named(pipeline, name)
        """As they are called once the server was asked."""
        self._is_named = False
        self._connection: Connection | None = None
        self._makes = False
        self._there: dict[str, TableInfo] = {}
        """The tables that can be read."""
        self._tables: dict[str, TableInfo] = {}
        """Those of them that some table of the file takes."""
        self._left_out: dict[str, Finding] = {}
        self._waiting: dict[str, Finding] = {}
        """Tables whose rows cannot be read yet, which does not hold up the others."""
        arrivals = source.kept.setdefault("arrivals", Arrivals())
        assert isinstance(arrivals, Arrivals)
        self._arrivals = arrivals
        self._ends: Offsets = source.kept.setdefault("ends", {})  # type: ignore[assignment]
        """Where batches end whatever else waits, by partition."""
        self._looked = -1.0
        self._marks, self._progress, self._seen = Marks(), Progress(), SeenEnds()
        self._slot: Slot | None = None
        self._position: Offsets = {}
        self._part: SnapshotPart | None = None
        self._told_columns: set[str] = set()
        self._published: dict[str, Published] = {}
        self._acknowledger: Acknowledger | None = None

    def begin(self) -> None:
        """Make the publication, which must be there before the slot; the slot is made when a table begins."""
        self._makes = True
        found, warned = self.findings(), self._source.warned
        tell_findings(self._name, found, self.takes, warned, goes_on=self.goes_on)
        with self._asking() as connection:
            claim(connection, self._source, self.publication, self._pipeline, self._name)
            self._look(connection)

    def findings(self) -> list[Finding]:
        """What keeps the tables from being read, with the statement that repairs it."""
        with self._asking() as connection:
            given = (self.publication, self.slot, self._source.tables, self._source.exclude)
            rows_only, before = self._source.snapshot == "only", self._source.before
            return findings(connection, *given, rows_only=rows_only, before=before)

    def key_problems(
        self, keys: Sequence[str], takes: Callable[[str], bool], declared: Collection[str] = ()
    ) -> dict[str, str]:
        """Keys of the file that are not the key of a table, and tables without a key that Delta can have."""
        with self._asking() as connection:
            tables = self._readable(connection, takes)
            whole = {*tables} - {*self._published} if self._source.snapshot == "only" else ()
            return key_problems(connection, tables, keys, declared, whole=whole)

    def column_names(self, takes: Callable[[str], bool]) -> dict[str, list[str]]:
        """What the catalog says of the columns that the publication has."""
        with self._asking() as connection:
            tables = self._readable(connection, takes)
        return {
            stream: [event_name(one) for one in self._published.get(stream, Published()).sent(table)]
            for stream, table in tables.items()
        }

    def original_names(self, takes: Callable[[str], bool]) -> dict[str, str]:
        """What the catalog says; nothing of a name that stands for different columns of two tables."""
        with self._asking() as connection:
            tables = self._readable(connection, takes)
        found: dict[str, set[str]] = {}
        for stream, table in tables.items():
            for column in self._published.get(stream, Published()).sent(table):
                found.setdefault(event_name(column), set()).add(column)
        return {
            name: original
            for name, (original, *others) in found.items()
            if not others and name == clean_column_name(original) != original
        }

    def type_problem(self, takes: Callable[[str], bool], table_of: Callable[[str], str | None]) -> str | None:
        """A column that has another type in each of two tables."""
        with self._asking() as connection:
            return type_problem(connection, self._readable(connection, takes), table_of)

    def left_out(self) -> dict[str, Finding]:
        """The tables that the file means and that cannot be read, as of the last look."""
        if self._looked < 0:
            with self._asking() as connection:
                self._look(connection)
        left_out = {**self._left_out, **self._waiting}
        return {stream: one for stream, one in left_out.items() if self.takes(stream)}

    def _readable(self, connection: Connection, takes: Callable[[str], bool]) -> dict[str, TableInfo]:
        self._look(connection)
        return {stream: table for stream, table in self._there.items() if takes(stream)}

    def column_types(self, takes: Callable[[str], bool]) -> list[pa.Schema]:
        """What the catalog says of the tables."""
        found = []
        with self._asking() as connection:
            self._look(connection)
            published = published_of(connection, self.publication)
            types = TableColumns(TypeCatalog(connection))
            for stream, table in self._tables.items():
                if takes(stream):
                    names = published.get(stream, Published()).columns
                    relation = relation_of(connection, stream, table.oid, names)
                    whole_rows = self._source.has_whole_rows(stream)
                    events = no_events(types, relation, (), whole_rows=whole_rows)
                    assert events.columns is not None
                    found.append(events.columns.schema)
        return found

    def stored_defaults(self, takes: Callable[[str], bool]) -> dict[str, pa.Scalar]:
        """What the catalog has for rows from before a column came."""
        tables = [one for stream, one in self._tables.items() if takes(stream)]
        if len(tables) != 1:
            return {}
        with self._asking() as connection:
            asked = (self.publication, tables[0].stream, tables[0].oid)
            found = stored_defaults(connection, *asked, finite=self._source.finite)
            return {event_name(name): value for name, (value, _) in found.items()}

    def start(self) -> Offsets:
        """From where the slot begins; the slot is made here."""
        with self._asking() as connection:
            self._look(connection)
            at = wal_end(connection)
            if self._source.snapshot != "only":
                slot = slot_named(connection, self.slot)
                if slot is None or slot.status == "lost":
                    slot = self._new_slot(connection)
                at = slot.confirmed if slot else at
            return self._offsets(connection, at, 0)

    def _new_slot(self, connection: Connection) -> Slot | None:
        """Make the slot, where a run has tables to read: a slot before the publication cannot be read."""
        return make_slot(self._source, connection, self.slot) if self._makes and self._tables else None

    def replaced_from(self, start: Offsets) -> Offsets:
        """Rows of a snapshot replace whatever was read of their table, also changes from before it."""
        return {
            name: 0 if start.get(rows_of(changes_of(name)), ALL_ROWS) <= AGAIN else at
            for name, at in start.items()
        }

    def latest(self) -> Offsets:
        """The end of the WAL that is on disk, for every table."""
        with self._asking() as connection:
            end = wal_end(connection)
            self._seen.add(end)
            if time.monotonic() - self._looked >= _LOOK_EVERY:
                self._look(connection, again=True)
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
        for stream, table in self._tables.items():
            if position.get(partition_name(stream, rows=True), AGAIN) > AGAIN:
                self._arrivals.begin(table)
        first = min((position[name] for name in streams), default=0)
        last = max((ends.get(name, 0) for name in streams), default=0)
        if pending and (last - first <= _SMALL_BACKLOG or not self._makes):
            # Changes of a table that has not begun are of no use yet.
            begun = [name for name in streams if position.get(rows_of(name), ALL_ROWS) > AGAIN]
            waits = self.ends and all(ends.get(name, 0) <= position[name] for name in begun)
            part = self._plan_rows(pending, allowed.rows, under, _WAIT_SECONDS if waits else 0.0)
            if part is not None:
                end = {name: max(at, part.end) if name in streams else at for name, at in position.items()}
                end = self._ended(position, end, part) if self._makes else dict(position)
                return end | {name: chunk.end for name, chunk in part.chunks.items()}
            if waits:
                text = "\n".join(map(_in_words, self._waiting.values()))
                raise SourceUnavailable(f"source {self._name}: {text}")
        fitting = first + max(allowed.bytes, _BYTES_OF_A_CHANGE * 1000)
        end = {
            name: at if is_rows(name) else max(at, min(ends.get(name, at), fitting))
            for name, at in position.items()
        }
        return self._ended(position, end)

    def _ended(self, position: Offsets, end: Offsets, part: SnapshotPart | None = None) -> Offsets:
        """The end of a batch, earlier where the key of a table changes within it.

        Rows that are read from the beginning have seen that; further ones are read behind it.
        """
        chunks = part.chunks if part else {}
        own = {name: at for name, at in self._ends.items() if position.get(name, at) < at < end.get(name, 0)}
        for name in own.keys() & {changes_of(rows) for rows in chunks}:
            if chunks[rows_of(name)].start <= AGAIN:
                del own[name]
            else:
                del chunks[rows_of(name)]
        return end | own

    def end_earlier(self, ends: Offsets) -> None:
        """The key of a table changes there; the clients of other runs have the same changes."""
        self._ends |= ends

    def _plan_rows(
        self, pending: Offsets, most: int, under: SnapshotPart | None, patience: float
    ) -> SnapshotPart | None:
        """The next rows of tables at these positions; None where all of these wait for other transactions."""
        tables = {stream_of(name): self._tables[stream_of(name)] for name in pending}
        beyond = max((at for name, at in self._position.items() if not is_rows(name)), default=0)
        with self._asking() as connection:
            begin = [tables[stream_of(name)] for name, at in pending.items() if at <= AGAIN]
            follows = self._source.snapshot != "only" and self._makes
            self._waiting = self._arrivals.wait(connection, begin) if follows else {}
            if patience and len(self._waiting) == len(tables):
                self._waiting = self._arrivals.wait(connection, begin, patience)
            self._tell(self._waiting.values())
            tables = {name: table for name, table in tables.items() if name not in self._waiting}
            for table in tables.values():
                self._progress.look(connection, table)
            if not tables:
                return None
            position = {name: at for name, at in pending.items() if stream_of(name) in tables}
            part = plan_part(self._source, self.publication, tables, position, beyond, most, under)
            if not part.chunks:
                part.close()
                for table in tables.values():
                    self._waiting[table.stream] = locked(connection, table.stream, table.oid)
                self._tell(self._waiting.values())
                return None
        self._part = part
        return part

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

    def note(self, parts: Mapping[str, PartRead]) -> None:
        """A batch is committed: let its snapshot go, and the locks with it."""
        if self._source.snapshot != "only":
            self._close_part()

    def strand(self, position: Offsets) -> Hashable:
        """Tables inside of a snapshot are read together only where they are at the same position.

        All of it counts where a table takes several streams: it may have the rows of one that others lack.
        """
        open_at = {name: at for name, at in position.items() if is_rows(name) and at < ALL_ROWS}
        if not open_at:
            return None
        if len(open_at) == 1 and len(position) == 2:
            (name, at), *_ = open_at.items()
            return at, position.get(changes_of(name))
        return tuple(sorted(position.items()))

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Refuse to go on where the slot no longer has what a table needs next, or another server answers.

        Raises StreamsLost where that concerns some tables of the database alone: they were recreated, or
        were not read for a while.
        """
        with self._asking() as connection:
            slot = slot_named(connection, self.slot)
            end = wal_end(connection)
            self._look(connection)
            self._tell(self._gone(positions))
            self._compare(positions, marks)
            for name in (name for name, at in positions.items() if is_rows(name) and at < ALL_ROWS):
                if (table := self._tables.get(stream_of(name))) is not None:
                    self._progress.look(connection, table)
            held = self._held(positions)
            # What is asked for, `lakefeed snapshot` brings whatever the slot has.
            anew = {one for one in held if self._is_read_anew(partition_name(one, rows=True), positions)}
            kept = {stream: at for stream, at in held.items() if stream not in anew}
            lost = None
            if held and self._source.snapshot != "only":
                refuse_older_server(self._name, where(self._source), max(held.values()), end)
                lost = slot_loss(self.slot, slot, min(kept.values())) if kept else None
            if lost and not self._may_read_again(self._source.on_slot_loss):
                raise DataLoss(f"source {self._name}: {lost}")
            if lost and self._makes:
                _log.warning("source %s: %s The rows are read anew.", self._name, lost.splitlines()[0])
            if slot is None or slot.status == "lost":
                slot = self._new_slot(connection) if lost or not kept else None
            again = anew | ({*kept} if lost else self._streams_to_read_again(kept, marks, slot))
            begin = slot.confirmed if slot else end
            fresh = self._offsets(connection, begin, 0)
        # A table that is not published any more has nothing to read.
        found = {name: positions.get(name, at) for name, at in fresh.items()}
        for name, at in found.items():
            if stream_of(name) in again:
                found[name] = AGAIN if is_rows(name) else max(at, begin)
        return found | dict.fromkeys(self._rekeyed(positions, marks), AGAIN)

    def _gone(self, positions: Offsets) -> Iterator[Finding]:
        """Tables that were read before, and that the file means and the database does not have."""
        meant = self._source.tables or ("*",)
        for stream in sorted({stream_of(name) for name in positions}):
            known = stream in self._there or stream in self._left_out or stream in self._waiting
            if not known and matches(stream, meant) and not matches(stream, self._source.exclude):
                text = f"{stream} is not there any more: it was dropped, or has another name"
                remedy = "What was read of it stays as it is; `exclude` on the source ends this message."
                yield Finding("warn", text, remedy, stream)

    def _rekeyed(self, positions: Offsets, marks: Mapping[str, int]) -> set[str]:
        """The partitions of rows whose position is a number of another key than the table has now."""
        streams = self._marks.rekeyed(marks).intersection(self._tables)
        found = {name for name, at in positions.items() if is_rows(name) and AGAIN < at < ALL_ROWS}
        found = {name for name in found if stream_of(name) in streams}
        for name in sorted(found) if self._makes else ():
            text = "the key of %s was changed while its rows were copied: they are read again."
            _log.warning(f"source %s: {text}", self._name, stream_of(name))
        return found

    def _held(self, positions: Offsets) -> dict[str, int]:
        """How far the changes, or else the rows, of tables that are there were read."""
        rows_only = self._source.snapshot == "only"
        return {
            stream_of(name): at
            for name, at in positions.items()
            if is_rows(name) == rows_only and stream_of(name) in self._tables
        }

    def _streams_to_read_again(
        self, held: Mapping[str, int], marks: Mapping[str, int], slot: Slot | None
    ) -> set[str]:
        """Tables that were recreated, and tables whose next changes the slot has passed, of those held."""
        other = self._marks.recreated(marks).intersection(held)
        passed: set[str] = set()
        if slot is not None and self._source.snapshot != "only":
            passed = {stream for stream, at in held.items() if at < slot.confirmed} - other
        failed: dict[str, str] = {}
        if not self._may_read_again(self._source.on_recreate):
            failed |= {one: recreated_text(self._name, one, self.publication) for one in other}
        if slot is not None and not self._may_read_again(self._source.on_slot_loss):
            failed |= {one: passed_text(self._name, one, held[one], self.slot, slot) for one in passed}
        if failed:
            raise StreamsLost(self._name, failed)
        for stream in sorted(other | passed) if self._makes else ():
            why = "is another table than before" if stream in other else "was not read for a while"
            since = self._marks.all()[stream] if stream in other else held[stream]
            if (told := f"{stream} {why}, {since}") not in self._source.warned:
                self._source.warned.add(told)
                _log.warning("source %s: %s %s: its rows are read again.", self._name, stream, why)
        return other | passed

    def _may_read_again(self, option: str) -> bool:
        return option == "snapshot" and self._source.snapshot != "never"

    def acknowledge(self, positions: Offsets) -> None:
        """Let the server forget the WAL that no table needs."""
        streams = [partition_name(one) for one in self._tables if self.takes(one)]
        if streams and all(one in positions for one in streams) and self._source.snapshot != "only":
            copied = all(at >= ALL_ROWS for name, at in positions.items() if is_rows(name))
            self._acknowledger = self._acknowledger or Acknowledger(self._source, self._name, self.slot)
            first = min(at for name, at in positions.items() if not is_rows(name))
            self._acknowledger.move(first, seen=not copied)

    def marks(self) -> dict[str, int]:
        """Which server, table and timeline the positions are of; see `Marks`."""
        if self._looked < 0:
            with self._asking() as connection:
                self._look(connection)
        return {
            name: number for name, number in self._marks.all().items() if self.takes(_stream_of_mark(name))
        }

    def outdated(self, marks: Mapping[str, int], start: Offsets) -> dict[str, str]:
        """Values and names that a statement changed without a change of a row."""
        self.marks()
        return self._marks.outdated(marks, start)

    def refuse_lost_keys(self, marks: Mapping[str, int], start: Offsets, rename: Mapping[str, str]) -> None:
        """Raise StreamsLost for tables whose key was renamed."""
        if lost := self._marks.keys_out_of_reach(marks, start, rename):
            texts = {stream: other_key_text(self._name, stream, columns) for stream, columns in lost.items()}
            raise StreamsLost(self._name, texts)

    def lost_columns(
        self, stream: str, columns: Collection[str], expected: Collection[str], marks: Mapping[str, int]
    ) -> dict[str, str]:
        """What the catalog says by now: a column may have been renamed since the last look."""
        with self._asking() as connection:
            table = tables_of(connection, self.publication).get(stream)
            published = published_of(connection, self.publication).get(stream, Published())
        if table is None:
            # It was dropped, or has another name: the next look finds that.
            return {}
        return LostColumns(table, published, marks).why(columns, expected)

    def close(self) -> None:
        """Let go of the connections."""
        if self._acknowledger is not None:
            self._acknowledger.close()
        self._close_part()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _compare(self, positions: Offsets, marks: Mapping[str, int]) -> None:
        """Compare the marks that a table holds with those of now."""
        own = self.marks()
        refuse_other_server(self._name, where(self._source), own, marks)
        known = {name: at for name, at in positions.items() if stream_of(name) in self._tables}
        if self._source.snapshot != "only":
            refuse_lost_timeline(self._name, self._source, known, marks, own)

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
            "oid": table.oid,
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
            payload = asdict(rows) | {
                "shows": span.start <= AGAIN,
                "finite": self._source.finite,
                "whole_rows": self._source.has_whole_rows(table.stream),
                "generated": self._source.snapshot == "only" and table.stream not in self._part.published,
            }
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

    def _look(self, connection: Connection, *, again: bool = False) -> None:
        """Look for tables, once or again; a run publishes those that have come.

        Positions that were checked are those of the tables of the last look, so a run looks again only where
        it compares the marks next.
        """
        if self._looked >= 0 and not again:
            return
        self._looked = time.monotonic()
        self._slot = slot_named(connection, self.slot)
        rows_only = self._source.snapshot == "only"
        chosen = self._choose(connection, rows_only)
        published = published_of(connection, self.publication)
        publishes = self._makes and bool(self._source.tables) and not rows_only
        lacking = [
            table
            for stream, table in chosen.readable.items()
            if stream not in published and self.takes(stream)
        ]
        unpublished: list[Finding] = []
        if publishes and lacking:
            unpublished = self._publish(connection, lacking)
            # Each has another entry of the publication now, which is one of its marks.
            chosen = self._choose(connection, rows_only)
            published = published_of(connection, self.publication)
        # What is not published yet shows in `plan`.
        self._there = {
            stream: table
            for stream, table in chosen.readable.items()
            if not publishes or stream in published or not self.takes(stream)
        }
        self._tables = {stream: table for stream, table in self._there.items() if self.takes(stream)}
        waiting = self._arrivals.look(connection, self._tables) if self._makes and not rows_only else {}
        self._tables = {stream: table for stream, table in self._tables.items() if stream not in waiting}
        gone = (one for one in self._source.tables if not is_pattern(one) and one not in chosen.meant)
        missing = {one: Finding("fail", f"there is no table {one} any more", "", one) for one in gone}
        skipped = {one.stream or "": one for one in unpublished}
        self._left_out = {**chosen.left_out, **missing, **waiting, **skipped}
        self._published = published
        self._marks.look(connection, self._tables)
        if again:
            self._tell([*chosen.findings, *self._left_out.values()])
        if again and self._slot is not None and self._slot.status == "unreserved":
            (keep,) = one_row(connection, "SELECT current_setting('max_slot_wal_keep_size')")
            self._tell([unreserved(self.slot, keep)])

    def _tell(self, findings: Iterable[Finding]) -> None:
        """Log what was found while a run goes on, once."""
        if self._makes:
            tell_findings(self._name, list(findings), self.takes, self._source.warned, goes_on=True)

    def _publish(self, connection: Connection, lacking: Sequence[TableInfo]) -> list[Finding]:
        """Publish tables; what keeps some of them from it for now."""
        patience = _PUBLISH_SECONDS if self.goes_on and not self.ends else _LOCK_SECONDS
        comment = owner_text(self._pipeline, self._name)
        statements, skipped = publish(connection, self.publication, lacking, comment, patience)
        for one in statements:
            _log.info("source %s: %s", self._name, one)
        for finding in skipped:
            if finding.stream in self._source.tables and not self.goes_on:
                raise SourceUnavailable(_in_words(finding))
        return skipped

    def _choose(self, connection: Connection, rows_only: bool) -> Chosen:
        return choose(
            tables_of(connection, self.publication),
            self._source.tables,
            self._source.exclude,
            published_of(connection, self.publication),
            publication_state(connection, self.publication),
            rows_only=rows_only,
        )

    def _is_read_anew(self, name: str, positions: Offsets) -> bool:
        at = positions.get(changes_of(name))
        return is_rows(name) and at is not None and self._source.is_read_anew(stream_of(name), at)

    def streams(self) -> list[str]:
        """The tables that can be read."""
        with self._asking() as connection:
            self._look(connection)
        return list(self._there)

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
                self._connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'".encode())
            connection = self._connection
            with postgres_errors(self._source):
                try:
                    if not self._is_named:
                        given = (connection, self._source, self._pipeline, self._name)
                        (self.publication, self.slot), self._is_named = settled_names(*given), True
                    yield connection
                except psycopg.errors.LockNotAvailable as error:
                    raise SourceUnavailable(f"waits for {lock_holder(connection)}") from error
        except SourceUnavailable as error:
            raise SourceUnavailable(f"source {self._name}: {error}") from error


def _in_words(finding: Finding) -> str:
    return f"{finding.text}. {finding.remedy}"


def _stream_of_mark(name: str) -> str:
    """The table that a mark is of; some are named like its partitions."""
    return stream_of(name.removesuffix(EPOCH)) if name.endswith(EPOCH) else name
