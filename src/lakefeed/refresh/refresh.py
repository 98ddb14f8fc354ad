"""One refresh: a query is run over one version of each table that it reads, and replaces all rows of its own.

The commit stands right behind the version that was examined, and holds the versions that were read. So a
process that dies before it leaves the old rows, and one that dies behind it has nothing more to do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from lakefeed.engine.faultpoints import passing
from lakefeed.engine.run_events import Committed, Refreshed, TableChanged, Watcher
from lakefeed.errors import LakefeedError
from lakefeed.files import WrittenFile
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.query.columns import conform
from lakefeed.handles.query.inputs import Input, Inputs, QueryFreshness
from lakefeed.handles.tables import Tables
from lakefeed.refresh.write import WritePlan
from lakefeed.tables.log.data_file import small_below
from lakefeed.tables.positions import query_id, read_by_query
from lakefeed.tables.shape import Shape
from lakefeed.tables.write.commit import Landed, commit
from lakefeed.tables.write.mode import Change

SOURCE = "query"
"""What stands for the source in what is told of a commit."""


class Query(Protocol):
    """What runs a query."""

    table: str

    def reads(self) -> list[str]:
        """The tables of the file that it reads. Raises TableError for a query that can never run."""
        ...

    def over(self, inputs: Sequence[Input], versions: Mapping[str, int]) -> pa.Schema:
        """Take these versions of the tables; the columns that the query makes of them."""
        ...

    def write(self, plan: WritePlan) -> list[WrittenFile]:
        """Run it, and write its rows into files that no version of the table holds yet."""
        ...

    def cancel(self) -> None:
        """End what runs, if anything."""
        ...


class Refresh:
    """The table of one query, computed anew as often as somebody asks. Used by one thread."""

    def __init__(self, tables: Tables, query: Query, watch: Watcher) -> None:
        self.name = query.table
        self.query = query
        self.handle: TableHandle = tables.handles[query.table]
        self._tables = tables
        self._pipeline = tables.pipeline.name
        self._watch = watch
        self._inputs: Inputs | None = None

    def prepare(self) -> None:
        """Let the query be read. Raises TableError for one that can never run."""
        self._inputs = Inputs(self._tables, self.name, self.query.reads())

    def look(self) -> QueryFreshness:
        """Whether the tables that it reads have changed since the rows were made."""
        assert self._inputs is not None
        with self.handle.lock:
            table = self.handle.table if self.handle.exists else self.handle.open(self._pipeline)
            if table is not None:
                table.refresh()
            transactions = dict(table.transactions) if table else {}
        return self._inputs.stand(transactions)

    def run(self, freshness: QueryFreshness) -> None:
        """Run the query over the versions that were seen, and replace the rows. Raises LakefeedError."""
        assert self._inputs is not None
        began = time.monotonic()
        passing("refresh_started")
        with self.handle.lock:
            # Looked at before the query runs: what another instance writes meanwhile is noticed then.
            table = self.handle.open(self._pipeline)
            held = dict(table.transactions) if table else {}
        transactions = self._transactions(freshness, held)
        made = self.query.over(self._inputs.inputs, freshness.versions)
        plan, shape = self._plan(made)
        files = self.query.write(plan)
        passing("refresh_written")
        commit_info = {
            "pipeline": self._pipeline,
            "kind": "refresh",
            "rows": sum(file.rows for file in files),
            "inputs": freshness.versions,
        }
        expected = {name: held.get(name) for name in transactions}
        self._commit(Change(files, transactions, expected, commit_info, shape), freshness, began)

    def _transactions(self, freshness: QueryFreshness, held: Mapping[str, int]) -> dict[str, int]:
        """What the log must hold afterwards; tables that the query no longer reads are forgotten."""
        assert self._inputs is not None
        before = read_by_query(held, self._pipeline)
        gone = {query_id(self._pipeline, name): -1 for name in before if name not in freshness.seen}
        return {**gone, **self._inputs.transactions(freshness.seen)}

    def _plan(self, made: pa.Schema) -> tuple[WritePlan, Shape]:
        """Give the table the columns of the query; how its files are written."""
        handle = self.handle
        with handle.lock:
            for text in conform(handle, made, {"pipeline": self._pipeline, "source": SOURCE}):
                self._watch(TableChanged(self.name, text))
            shape = handle.table.shape
        passing("refresh_created")
        plan = WritePlan(handle.path, handle.storage, handle.target(shape), handle.partition_fields)
        return plan, shape

    def _commit(self, change: Change, freshness: QueryFreshness, began: float) -> None:
        handle, committing = self.handle, time.monotonic()
        retried: list[int] = []
        assert handle.spec is not None
        try:
            with handle.lock:
                landed = commit(
                    handle.table,
                    change,
                    handle.mode,
                    retries=handle.spec.commit_retries,
                    on_retry=lambda: retried.append(1),
                )
        except LakefeedError as error:
            # Otherwise the commit may have landed, and vacuum removes what it does not hold.
            if error.untried:
                handle.drop(change.files)
            raise
        passing("refresh_committed")
        now = time.monotonic()
        self._tell(landed, change, freshness, now - committing, len(retried))
        rows = sum(file.rows for file in change.files)
        self._watch(Refreshed(self.name, landed.version, rows, now - began, freshness.versions))

    def _tell(
        self, landed: Landed, change: Change, freshness: QueryFreshness, seconds: float, retries: int
    ) -> None:
        assert self.handle.spec is not None
        small = small_below(self.handle.spec.target_file_size)
        self._watch(
            Committed(
                self.name,
                SOURCE,
                landed.version,
                rows=sum(file.rows for file in change.files),
                files=len(change.files),
                size=sum(file.size for file in change.files),
                dead_letters=0,
                seconds=seconds,
                retries=retries,
                small_files=sum(file.size < small for file in change.files),
                replaces=True,
                inputs=freshness.versions,
            )
        )
