"""The ledger of a source of files: a Delta table that numbers every file in the order it was found.

It is only ever appended to. A file has a row when it is found, and one more for whatever became of it since;
of the rows of one number, the one with the state that comes last in `STATES` counts. Rows are appended under
the fence of every other table: the last number that the writer knows must be the last one there.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.errors import Fenced, LakefeedError, TableError
from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.sources.files.offset import numbers_of
from lakefeed.stores import open_store
from lakefeed.tables.data_files import data_files, read_rows
from lakefeed.tables.positions import mark_id
from lakefeed.tables.rewrite import compact
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change

LEDGER = pa.schema(
    [
        ("number", pa.int64()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modified", TIMESTAMP),
        ("etag", pa.string()),
        ("discovered_at", TIMESTAMP),
        ("state", pa.string()),
        ("rows", pa.int64()),
        ("dead_letters", pa.int64()),
        ("version", pa.int64()),
        ("read_at", TIMESTAMP),
        ("error", pa.string()),
    ]
)

WAITING, SKIPPED, READ, UNREADABLE = "waiting", "skipped", "read", "unreadable"
DELETED, MOVED, REPLACED, FORGOTTEN = "deleted", "moved", "replaced", "forgotten"
STATES = (WAITING, SKIPPED, READ, UNREADABLE, DELETED, MOVED, REPLACED, FORGOTTEN)
"""What may have become of a file, in the order in which it happens."""
GONE = (REPLACED, FORGOTTEN)
"""States of numbers that are not read any more."""
TAKEN_AWAY = (DELETED, MOVED)
"""States of files that every table had when they were taken away."""
_RETRIES = 5
_MANY_FILES = 100
"""Files of a ledger from which on it is compacted when a run begins."""


@dataclass(frozen=True)
class LedgerLocation:
    """Where a ledger is, and whose it is."""

    path: str
    storage: Mapping[str, str]
    pipeline: str
    source: str
    sync: bool = True


class Ledger:
    """The rows of a ledger, and the way to append more. Used by one thread.

    `rows` has one row for each number, sorted by number. Without a table yet, it has none.
    """

    def __init__(self, location: LedgerLocation) -> None:
        self._location = location
        self._store = open_store(location.path, location.storage)
        self._mark = mark_id(location.pipeline, location.source, "number")
        self.table: LakeTable | None = None
        self.rows: pa.Table = LEDGER.empty_table()
        self.load()

    def load(self) -> None:
        """Read what is there."""
        location = self._location
        self.table = LakeTable.open(
            "files", location.path, location.storage, self._store, durable=location.sync
        )
        if self.table is None:
            self.rows = LEDGER.empty_table()
            return
        batches = list(read_rows(self.table, data_files(self.table), LEDGER))
        self.rows = counting(pa.Table.from_batches(batches, LEDGER))

    @property
    def id(self) -> str | None:
        """The id of the table; None while there is none."""
        return self.table.shape.table_id if self.table else None

    def create(self) -> None:
        """Make the table, unless it is there."""
        if self.table is not None:
            return
        location = self._location
        self.table = LakeTable.create(
            "files",
            location.path,
            location.storage,
            self._store,
            schema=LEDGER,
            partition_by=(),
            properties={},
            transactions={self._mark: 0},
            commit_info={"pipeline": location.pipeline, "source": location.source, "kind": "create"},
            durable=location.sync,
        )
        self.load()

    def compact(self) -> None:
        """Make few files of many: each append has left a small one. What fails is done the next time."""
        if self.table is None or len(data_files(self.table)) < _MANY_FILES:
            return
        target = FileTarget(LEDGER, sync=self._location.sync)
        info = {"pipeline": self._location.pipeline, "kind": "compact"}
        with suppress(LakefeedError):
            plan = compact.plan(self.table)
            compact.run(self.table, plan, info, lambda *_: TableWriter(self._store, target))
        self.load()

    def refresh(self) -> bool:
        """Read what others have appended; False where there was nothing."""
        if self.table is None or not self.table.refresh():
            return False
        self.load()
        return True

    def append(self, rows: pa.Table, more: Mapping[str, Any] | None = None) -> bool:
        """Append rows, with `more` in the commit info.

        False where somebody else was faster: then what is there has been read anew.
        """
        self.create()
        assert self.table is not None
        if (self.table.transactions.get(self._mark) or 0) > self._last():
            raise TableError(
                f"the ledger {self._location.path} has lost rows: it was brought back to an older state.\n"
                "Restore its newest version: lakefeed table history and restore."
            )
        both = counting(pa.concat_tables([self.rows, rows]))
        writer = TableWriter(self._store, FileTarget(LEDGER, sync=self._location.sync))
        for batch in rows.to_batches():
            writer.write(batch)
        held = self.table.transactions.get(self._mark)
        last = max(held or 0, both["number"][-1].as_py())
        info = {
            "pipeline": self._location.pipeline,
            "source": self._location.source,
            "kind": "files",
            "rows": rows.num_rows,
            **(more or {}),
        }
        change = Change(writer.close(), {self._mark: last}, {self._mark: self._last()}, info)
        seen = self.table.version
        try:
            version = append(self.table, change, retries=_RETRIES)
        except Fenced:
            writer.abort()
            self.load()
            return False
        self.rows = both
        if version != seen + 1:
            # Somebody has told what became of other files: that moves no number, so it is no conflict.
            self.load()
        return True

    def _last(self) -> int:
        return int(self.rows["number"][-1].as_py()) if self.rows.num_rows else 0


def counting(rows: pa.Table) -> pa.Table:
    """Of each number the row that counts, sorted by number."""
    numbers = rows["number"].to_numpy()
    if not len(numbers):
        return rows
    if (np.diff(numbers) > 0).all():
        return rows
    ranks = pc.index_in(rows["state"], value_set=pa.array(STATES)).to_numpy()
    order = np.lexsort((ranks, numbers))
    sorted_numbers = numbers[order]
    last = np.append(sorted_numbers[1:] != sorted_numbers[:-1], True)
    return rows.take(pa.array(order[last])).combine_chunks()


def next_number(rows: pa.Table) -> int:
    """The number of the next file, from 1 on, given the rows that count."""
    return int(rows["number"][-1].as_py()) + numbers_of(rows["size"][-1].as_py()) if rows.num_rows else 1


def found(files: pa.Table, first: int) -> pa.Table:
    """Rows for files that were found, numbered in their order."""
    sizes = files["size"].to_pylist()
    numbers, at = [], first
    for size in sizes:
        numbers.append(at)
        at += numbers_of(size)
    given = {name: files[name] for name in ("path", "size", "modified", "etag")}
    count = files.num_rows
    given["number"] = pa.array(numbers, pa.int64())
    given["discovered_at"] = pa.repeat(pa.scalar(dt.datetime.now(dt.UTC), TIMESTAMP), count)
    given["state"] = pa.repeat(WAITING, count)
    return _table(given, count)


def with_state(files: pa.Table, state: str | Sequence[str], **more: Any) -> pa.Table:
    """The same files in another state, and what else is known by now."""
    count = files.num_rows
    given = {name: files[name] for name in LEDGER.names}
    given["state"] = pa.repeat(state, count) if isinstance(state, str) else pa.array(state, pa.string())
    for name, values in more.items():
        given[name] = pa.array(values, LEDGER.field(name).type)
    return _table(given, count)


def _table(given: Mapping[str, Any], count: int) -> pa.Table:
    columns = [given.get(field.name, pa.nulls(count, field.type)) for field in LEDGER]
    arrays = [one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in columns]
    return pa.Table.from_arrays(arrays, schema=LEDGER)
