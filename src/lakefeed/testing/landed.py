"""Samples that are sent through a pipeline into tables of their own, and the content of these tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import Watcher, unwatched
from lakefeed.pipeline.options.route import Route
from lakefeed.pipeline.pipeline import DeadLetters, Pipeline, Table
from lakefeed.pipeline.test_file import Sample
from lakefeed.run import run as run_watched
from lakefeed.sources import Source, source_of
from lakefeed.sources.samples import SampleSource
from lakefeed.stores import open_store
from lakefeed.tables.log.log import Log
from lakefeed.tables.table import commit_info_of
from lakefeed.testing.queries import queries_for, run_queries

_TIMEOUT = 10.0
"""Seconds. In a folder of its own, a run has nothing to wait for."""


@dataclass(frozen=True)
class Landed:
    """The tables after the events have landed. They are in the folder that was given."""

    folder: Path
    routes: Mapping[str, Route] = field(default_factory=dict)
    """The tables of the pipeline that are routes, and where these lead in the folder."""

    @classmethod
    def of(cls, pipeline: Pipeline, folder: Path) -> Landed:
        """What the tables of a pipeline hold that were made anew in the folder."""
        moved = {name: _table(table, folder / "tables" / name) for name, table in pipeline.tables.items()}
        return cls(folder, {name: table.routed for name, table in moved.items() if table.routed})

    def path(self, table: str) -> str:
        """Where a table of the pipeline is now; of a route, `events/view` is the table of that value."""
        name, _, values = table.partition("/")
        key = tuple(values.split("/"))
        if name in self.routes and len(key) == len(self.routes[name].columns):
            return self.routes[name].path(key)
        return str(self.folder / "tables" / table)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, none where it was not created."""
        return read_rows(self.path(table))[1]

    def dead_letters(self, table: str) -> list[dict[str, Any]]:
        """The dead letters of a table."""
        letters = read_rows(str(self.folder / "dead_letters"))[1]
        return [letter for letter in letters if letter["table"] == table]

    def filtered(self, table: str) -> int:
        """How many events were left out of a table on purpose."""
        log = Log.open(open_store(self.path(table), {}))
        infos = [commit_info_of(entry.info) for entry in log.entries()] if log else []
        return sum(sum(info.get("filtered", {}).values()) for info in infos)


def run_samples(
    pipeline: Pipeline | str | Path,
    events: Mapping[str, Sequence[Sample]],
    folder: Path,
    *,
    spark: bool = False,
    watch: Watcher | None = None,
) -> Landed:
    """Send events through a pipeline, given by source, as if they were all that its sources hold.

    Every table is made anew in `folder`, whatever its path in the file. With `spark` the run is one of
    Structured Streaming, some seconds slower; else its tasks run in this process, and Spark is started only
    for a `query`, or for SQL that Arrow does not have. `watch` gets the events of the run. Raises what a run
    would raise.
    """
    return send(pipeline, events, folder, spark=spark, watch=watch)


def send(
    pipeline: Pipeline | str | Path,
    events: Mapping[str, Sequence[Sample]],
    folder: Path,
    *,
    spark: bool,
    watch: Watcher | None = None,
    tables: Collection[str] | None = None,
) -> Landed:
    """As `run_samples`; of tables with a query, those among `tables` are computed, and what they read."""
    chosen = pipeline if isinstance(pipeline, Pipeline) else Pipeline.from_file(pipeline)
    unknown = sorted(set(events) - set(chosen.sources))
    if unknown:
        raise ValueError(f"the pipeline has no source {unknown[0]!r}; it has {', '.join(chosen.sources)}")
    moved = _moved(chosen, events, folder, tables)
    if not spark:
        run_inline(moved, watch or unwatched)
        if moved.queries():
            run_queries(moved, watch or unwatched)
    else:
        run_watched(moved, once=True, watch=watch or unwatched)
    return Landed.of(chosen, folder)


def read_rows(path: str, storage: Mapping[str, str] | None = None) -> tuple[pa.Schema, list[dict[str, Any]]]:
    """The columns and rows of a Delta table; neither where there is none."""
    try:
        table = DeltaTable(path, storage_options=dict(storage) if storage else None)
    except TableNotFoundError:
        return pa.schema([]), []
    schema = pa.schema(table.schema().to_arrow())
    # By delta-rs's own engine, as Arrow's reader of directories imports pandas.
    found: Any = QueryBuilder().register("landed", table).execute("select * from landed")
    rows = pa.RecordBatchReader.from_stream(found).read_all()
    return schema, rows.select(schema.names).cast(schema).to_pylist()


def _moved(
    pipeline: Pipeline,
    events: Mapping[str, Sequence[Sample]],
    folder: Path,
    wanted: Collection[str] | None = None,
) -> Pipeline:
    """The pipeline with the events for its sources, and all that it writes in the folder."""
    idle = set() if wanted is None else pipeline.queries().keys() - queries_for(pipeline, wanted)
    tables = {
        name: _table(table, folder / "tables" / name)
        for name, table in pipeline.tables.items()
        if name not in idle
    }
    sources = {name: _source(pipeline, name, events.get(name, ()), tables) for name in pipeline.sources}
    return pipeline.model_copy(
        update={
            "sources": sources,
            "tables": tables,
            "dead_letters": DeadLetters(
                path=str(folder / "dead_letters"), stop_above=pipeline.dead_letters.stop_above
            ),
            "storage": {},
            # All of it is deleted again.
            "sync": False,
            "state": str(folder / "state"),
            "http": None,
            "give_up_after": _TIMEOUT,
        }
    )


def _source(pipeline: Pipeline, name: str, events: Sequence[Sample], tables: Mapping[str, Table]) -> Source:
    """A source with the events that were given for it; one that reads a table of the file reads it there."""
    spec, read = source_of(pipeline, name), pipeline.graph.table_read_by(name)
    if read is None or events:
        return SampleSource.of(spec, name, events)
    return spec.model_copy(update={"path": tables[read].path, "storage": {}})


def _table(table: Table, path: Path) -> Table:
    where = {"path": str(path)}
    if table.routed:
        # With the text around the values: the run refuses values by the names that they would make.
        where = {"route": str(path) + table.routed.template.removeprefix(table.routed.base)}
    return table.model_copy(update={**where, "create": True, "storage": None})
