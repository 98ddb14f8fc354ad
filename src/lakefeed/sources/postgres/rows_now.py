"""The rows of tables under one snapshot of the server, and which of them their copies may not have yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

import numpy as np
import pyarrow as pa
from psycopg import sql

from lakefeed.events import Events, OffsetRange, Offsets
from lakefeed.sources import SourceRows
from lakefeed.sources.postgres.checks.blockers import lock_holder
from lakefeed.sources.postgres.checks.unreadable import choose
from lakefeed.sources.postgres.connection import connect, postgres_errors
from lakefeed.sources.postgres.events import METADATA, Origins, PostgresEvents
from lakefeed.sources.postgres.positions import ALL_ROWS, is_rows, lsn_text, partition_name, stream_of
from lakefeed.sources.postgres.relations import tables_of
from lakefeed.sources.postgres.replication.names import settled_names
from lakefeed.sources.postgres.replication.pgoutput import TRUNCATE, Changes, Decoder, Mask, Relation
from lakefeed.sources.postgres.replication.publication import Published, publication_state, published_of
from lakefeed.sources.postgres.replication.slot import slot_named
from lakefeed.sources.postgres.replication.slot_messages import messages
from lakefeed.sources.postgres.replication.stream import streamed
from lakefeed.sources.postgres.snapshot.plan import export, flushed_end, wal_end
from lakefeed.sources.postgres.snapshot.progress import estimated
from lakefeed.sources.postgres.snapshot.rows import Rows, no_events, read_rows, relation_of
from lakefeed.sources.postgres.snapshot.visibility import Visibility
from lakefeed.sources.postgres.source import PostgresSource
from lakefeed.sources.postgres.values.column_names import event_name
from lakefeed.sources.postgres.values.table_columns import TableColumns
from lakefeed.sources.postgres.values.type_catalog import TypeCatalog


class PostgresRows(SourceRows):
    """Holds a snapshot of the server until `close`; changes nothing, and leaves the slot where it is."""

    def __init__(self, source: PostgresSource, pipeline: str, name: str, streams: Sequence[str]) -> None:
        self._source, self._finite = source, source.finite
        self._connection = connect(source)
        try:
            with postgres_errors(source):
                self._publication, self._slot = settled_names(self._connection, source, pipeline, name)
                self._open(streams)
        except BaseException:
            self.close()
            raise

    def _open(self, streams: Sequence[str]) -> None:
        connection = self._connection
        self._tables = tables_of(connection, self._publication)
        tables = [self._tables[one] for one in streams if one in self._tables]
        tables = [one for one in tables if one.may_use and one.may_read]
        self._locked, (self._exported, seen, _) = export(connection, tables)
        oids = [one.oid for one in tables if one.stream not in self._locked]
        self._published = published_of(connection, self._publication, oids)
        self._seen = Visibility.of(seen)
        # Read after the snapshot: whatever it sees was committed before.
        on_standby = connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone() == (True,)
        follows = self._source.snapshot != "only" and not on_standby
        self._end = flushed_end(self._source, 0) if follows else wal_end(connection)
        self.moment = lsn_text(self._end)

    def streams(self) -> dict[str, str | None]:
        """The tables; a view has no rows that a pattern means."""
        connection, source = self._connection, self._source
        published = published_of(connection, self._publication)
        state = publication_state(connection, self._publication)
        rows_only = source.snapshot == "only"
        chosen = choose(self._tables, source.tables, source.exclude, published, state, rows_only=rows_only)
        found: dict[str, str | None] = {}
        for stream, table in chosen.meant.items():
            if table.is_table:
                finding = chosen.left_out.get(stream)
                found[stream] = finding.text if finding else None
        return found

    def problem(self, stream: str, positions: Offsets) -> str | None:
        """Why a table at these positions is no copy of the stream."""
        table = self._tables.get(stream)
        if table is None:
            return "the database has no table of this name any more"
        if not (table.may_use and table.may_read):
            return "the role may not read it"
        if stream in self._locked:
            return f"another transaction has locked it; the longest is {lock_holder(self._connection)}"
        if not table.keys:
            return "it has neither a primary key nor an index as its replica identity"
        if self._source.snapshot == "never":
            return "with `snapshot: never`, rows from before the first run are not copied"
        if positions.get(partition_name(stream, rows=True), 0) < ALL_ROWS:
            return "its rows have not been copied to the end yet; run the pipeline first"
        return self._no_events(stream).problem

    def position(self, positions: Offsets) -> str:
        """The LSN."""
        return lsn_text(max((at for name, at in positions.items() if not is_rows(name)), default=0))

    def keys(self, stream: str) -> tuple[str, ...]:
        """The columns of the primary key, or of the replica identity."""
        return tuple(map(event_name, self._tables[stream].keys))

    def columns(self, stream: str) -> pa.Schema:
        """The columns that the publication has, in the types that they get in Delta."""
        found = self._no_events(stream).columns
        assert found is not None
        return pa.schema([field for field in found.schema if field.name not in METADATA.names])

    def estimate(self, stream: str) -> int:
        """By the statistics of the server."""
        return estimated(self._tables[stream])

    def edges(self, stream: str, rows: int) -> list[int] | None:
        """Asks the index of the key, a range at a time."""
        table = self._tables[stream]
        if table.chunks is None or table.chunks.is_hashed:
            return None
        name, of = sql.Identifier(table.chunks.columns[0]), sql.Identifier(table.schema, table.name)
        only = sql.SQL("" if table.is_partitioned else "ONLY ")
        found: list[int] = []
        while True:
            since = sql.SQL("WHERE {} > {}").format(name, sql.Literal(found[-1])) if found else sql.SQL("")
            query = sql.SQL("SELECT {} FROM {}{} {} ORDER BY {} OFFSET {} LIMIT 1")
            further = sql.Literal(rows - bool(found))
            row = self._connection.execute(query.format(name, only, of, since, name, further)).fetchone()
            if row is None:
                return found
            found.append(int(row[0]))

    def read(self, stream: str, first: int | None = None, end: int | None = None) -> Iterator[Events]:
        """The rows as the publication has them, by the way of a snapshot."""
        table, published = self._tables[stream], self._published.get(stream, Published())
        conditions = [published.filter] if published.filter else []
        if table.chunks is not None and not table.chunks.is_hashed:
            name = table.chunks.expression()
            conditions += [f"{name} >= {first}"] if first is not None else []
            conditions += [f"{name} < {end}"] if end is not None else []
        rows = Rows(
            stream=stream,
            oid=table.oid,
            schema=table.schema,
            table=table.name,
            keys=table.keys,
            key=None,
            first=0,
            exported=self._exported,
            lsn=0,
            where=" AND ".join(f"({one})" for one in conditions) or None,
            columns=published.columns,
            whole_tree=table.is_partitioned,
            finite=self._finite,
            generated=self._is_unpublished(stream),
        )
        span = OffsetRange(partition_name(stream, rows=True), 0, ALL_ROWS)
        with closing(connect(self._source)) as connection, postgres_errors(self._source):
            yield from read_rows(connection, span, rows)

    def changed(self, positions: Offsets) -> Iterator[tuple[str, pa.RecordBatch | None]]:
        """Decodes what the slot has up to the snapshot."""
        if self.covers(positions) is None:
            return
        wanted = {stream_of(name): at for name, at in positions.items() if not is_rows(name)}
        keys = {stream: self._tables[stream].keys for stream in wanted if stream in self._tables}
        with closing(connect(self._source)) as connection, closing(connect(self._source)) as catalog:
            decoder, columns = Decoder(keys), TableColumns(TypeCatalog(catalog), finite=self._finite)
            with postgres_errors(self._source):
                stream_from = partial(streamed, self._source, self._slot, self._publication, end=self._end)
                for piece in messages(connection, self._slot, self._publication, self._end, stream_from):
                    for changes in decoder.decode(piece):
                        stream = changes.relation.stream
                        if stream not in keys:
                            continue
                        # Committed behind the position and seen; or before it, and not seen yet, as a
                        # transaction that waits for a standby.
                        differs = (changes.lsns >= wanted[stream]) == self._seen.sees(changes.xids)
                        if differs.any():
                            yield stream, _keys(columns, changes, differs, keys[stream])

    def covers(self, positions: Offsets) -> bool | None:
        """Whether the slot has not been moved on beyond any of the positions."""
        if self._source.snapshot == "only":
            return None
        with closing(connect(self._source)) as connection, postgres_errors(self._source):
            slot = slot_named(connection, self._slot)
        if slot is None or slot.status == "lost":
            return None
        return all(at >= slot.confirmed for name, at in positions.items() if not is_rows(name))

    def close(self) -> None:
        """Let the snapshot go."""
        self._connection.close()

    def _no_events(self, stream: str) -> PostgresEvents:
        columns, oid = self._published.get(stream, Published()).columns, self._tables[stream].oid
        unpublished = self._is_unpublished(stream)
        relation = relation_of(self._connection, stream, oid, columns, generated=unpublished)
        catalog = TypeCatalog(self._connection)
        return no_events(TableColumns(catalog, finite=self._finite), relation, ())

    def _is_unpublished(self, stream: str) -> bool:
        """Whether the rows are those of `snapshot: only`, which have all columns."""
        return self._source.snapshot == "only" and stream not in self._published


def _keys(
    columns: TableColumns, changes: Changes, chosen: Mask, keys: tuple[str, ...]
) -> pa.RecordBatch | None:
    """The keys of some changes; None where they have none."""
    names = [field.name for field in changes.relation.fields]
    if (changes.ops[chosen] == TRUNCATE).any() or not {*keys} <= {*names}:
        return None
    at = [names.index(name) for name in keys]
    relation = Relation(
        changes.relation.oid, changes.relation.stream, tuple(changes.relation.fields[one] for one in at)
    )
    mask = pa.array(chosen)
    texts = [changes.texts[one].filter(mask) for one in at]
    count = int(np.count_nonzero(chosen))
    numbers = np.zeros(count, np.int64)
    added = [pa.nulls(count, field.type) for field in METADATA]
    events = columns.events(relation, texts, added, keys, Origins(relation.stream, numbers, numbers))
    assert events.columns is not None
    return events.columns.select(list(events.key_columns or ()))
