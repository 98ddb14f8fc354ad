"""The writing end of a route: rows part into one table for each value, on a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from lakefeed.columns.staged import STAGED
from lakefeed.columns.widening import merge_proposals
from lakefeed.engine.batch.manifest import TableManifest
from lakefeed.events import OffsetRange, Refused
from lakefeed.files.names import Serial
from lakefeed.files.parquet import TableWriter
from lakefeed.handles.table_plan import RoutedTable, TableId, TablePlan
from lakefeed.pipeline.options.route import Key
from lakefeed.rows.conform import conformed
from lakefeed.rows.route import key_of, lacking, part
from lakefeed.stores import open_store

CLOSED_AT_ONCE = 8
"""Tables of a route whose files are finished side by side, as each waits for the disk."""


class RoutedWriters:
    """Writes the rows of one task into the tables of a route.

    When a table is missing, or lacks a column that its rows have, nothing is written to any of them: the
    driver must change the tables first, or events of the new one would be behind the positions of the others.
    """

    def __init__(self, table: TablePlan, ranges: Sequence[OffsetRange], serial: Serial | None = None) -> None:
        self._serial = serial
        assert table.route is not None
        self._table = table
        self._route = table.route
        self._writers: dict[Key, TableWriter] = {}
        self._proposals: dict[TableId, pa.Schema] = {}
        self._events: dict[Key, list[int]] = {}
        self._done = {key for key in table.routed if table.has_passed(key, ranges[0])}
        """Tables that have the events of this task already."""

    def write(self, rows: pa.RecordBatch, indexes: Sequence[int]) -> list[Refused]:
        """Take rows, made of the events at these indexes; returns those that belong to no table."""
        parts, unroutable = part(rows, self._route)
        refused = [replace(one, index=indexes[one.index]) for one in unroutable]
        closed = {key: why for key, _ in parts if (why := self._table.closed_to(key)) is not None}
        if closed or self._table.tells_events:
            events = self._events_of(rows, indexes)
            refused += [
                Refused(index, "write", *why) for key, why in closed.items() for index in events.get(key, ())
            ]
            for key in (events.keys() - closed.keys()) if self._table.tells_events else ():
                self._events.setdefault(key, []).extend(events[key])
        for key, own in parts:
            if key not in self._done and key not in closed:
                self._take(key, own)
        return sorted(refused, key=lambda one: one.index)

    def expect(self, stream: str, columns: pa.Schema) -> None:
        """Ask for the table of a stream, though `where` or a rule may leave no row of it.

        Without a table, no log has the position of the stream: it would be read anew at every start.
        """
        key, _ = key_of([stream], self._route)
        if key is None or key in self._table.routed or self._table.closed_to(key) is not None:
            return
        if TableId(self._table.name, key) not in self._proposals:
            self._propose(TableId(self._table.name, key), columns)

    def _events_of(self, rows: pa.RecordBatch, indexes: Sequence[int]) -> dict[Key, list[int]]:
        """By table: the indexes of the events of its rows."""
        numbered = rows.append_column("", pa.array(indexes, pa.int64()))
        parts, _ = part(numbered, self._route)
        return {key: own.column(own.num_columns - 1).to_pylist() for key, own in parts}

    def _take(self, key: Key, rows: pa.RecordBatch) -> None:
        known = self._table.routed.get(key)
        missing = lacking(rows, known.target.schema if known else STAGED)
        if known is None or missing is not None:
            self._propose(TableId(self._table.name, key), missing or pa.schema([]))
        elif not self._proposals:
            self._writer(key, known).write(conformed(rows, known.target.schema))

    def _writer(self, key: Key, known: RoutedTable) -> TableWriter:
        if key not in self._writers:
            store = open_store(known.path, dict(self._table.storage))
            self._writers[key] = TableWriter(store, known.target, self._serial)
        return self._writers[key]

    def _propose(self, table: TableId, columns: pa.Schema) -> None:
        self.abort()
        before = self._proposals.get(table, pa.schema([]))
        self._proposals[table] = merge_proposals(before, columns)

    def close(self) -> Mapping[TableId, TableManifest]:
        """Finish every file; returns what was written or is to be changed first, by table."""
        found = {table: TableManifest(table, proposal=columns) for table, columns in self._proposals.items()}
        tables = [TableId(self._table.name, key) for key in self._writers]
        with ThreadPoolExecutor(max_workers=CLOSED_AT_ONCE) as pool:
            written = pool.map(TableWriter.close, self._writers.values())
            for table, files in zip(tables, written, strict=True):
                found[table] = TableManifest(table, files=files, events=self._events.get(table.key, []))
        return found

    @property
    def waiting_bytes(self) -> int:
        """What all tables together hold in memory."""
        return sum(writer.waiting_bytes for writer in self._writers.values())

    def flush(self) -> None:
        """Let every table write what it holds."""
        for writer in self._writers.values():
            writer.flush()

    def abort(self) -> None:
        """Delete what was written."""
        for writer in self._writers.values():
            writer.abort()
        self._writers.clear()
