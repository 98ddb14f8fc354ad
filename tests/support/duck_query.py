"""A query that DuckDB runs in this process, where a test asks for what is around a query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from lakefeed.engine.run_events import Watcher, unwatched
from lakefeed.files import WrittenFile
from lakefeed.handles.query.inputs import Input
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.refresh.refresh import Refresh
from lakefeed.refresh.refresher import Refreshers
from lakefeed.refresh.spark_words import QueryError
from lakefeed.refresh.write import WritePlan, write_rows


class DuckQuery:
    """Reads the inputs that the text of the file names, at the versions that it is given."""

    def __init__(self, pipeline: Pipeline, table: str) -> None:
        self.table = table
        self.text = pipeline.tables[table].query or ""
        self.ran: list[dict[str, int]] = []
        """The versions of every time that it was run."""
        self.before_commit: Callable[[], None] = lambda: None
        self._reads = pipeline.queries()[table]
        self._result = pa.table({})

    def reads(self) -> list[str]:
        return self._reads

    def over(self, inputs: Sequence[Input], versions: Mapping[str, int]) -> pa.Schema:
        self.ran.append(dict(versions))
        with duckdb.connect() as db:
            db.execute("SET timezone = 'UTC'")
            for one in inputs:
                table = DeltaTable(one.path, version=versions[one.name])
                db.register(one.name, table.to_pyarrow_table())
            try:
                self._result = db.sql(self.text).to_arrow_table()
            except duckdb.Error as error:
                raise QueryError(f"table {self.table}: the query failed: {error}") from error
        return self._result.schema

    def write(self, plan: WritePlan) -> list[WrittenFile]:
        written = write_rows(plan, self._result.to_batches())
        self.before_commit()
        return written

    def cancel(self) -> None:
        """It is over in a moment."""


def refresh_of(pipeline: Pipeline, table: str, watch: Watcher = unwatched) -> Refresh:
    """A table of a query, as one instance of the pipeline sees it."""
    refresh = Refresh(Tables(pipeline), DuckQuery(pipeline, table), watch)
    refresh.prepare()
    return refresh


def stopped_after(seconds: float) -> threading.Event:
    """An event that is set after a while."""
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.daemon = True
    timer.start()
    return stop


def refresh_all(pipeline: Pipeline, watch: Watcher = unwatched) -> None:
    """Bring every table of a query up to date, as a run that ends by itself does behind its flows."""

    def query(name: str) -> DuckQuery:
        return DuckQuery(pipeline, name)

    with Refreshers(Tables(pipeline), query, watch, stopped_after(60), once=True).beside(5.0):
        pass
