"""Tables with a query, in tests: Spark runs the queries alone, on the tables that the samples have filled."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from lakefeed.engine.run_events import Starting, Watcher
from lakefeed.engine.spark.analyzer import analyze_here
from lakefeed.engine.spark.delta import delta_settings
from lakefeed.engine.spark.session import spark_session
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.refresh.refresher import Refreshers
from lakefeed.refresh.spark_query import SparkQuery

_TIMEOUT = 60.0


def queries_for(pipeline: Pipeline, wanted: Collection[str]) -> set[str]:
    """The tables with a query that must be computed so that these tables are."""
    queries: Mapping[str, list[str]] = pipeline.queries()
    found: set[str] = set()
    waiting = [name for name in wanted if name in queries]
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting += [one for one in queries[name] if one in queries and one not in found]
    return found


def run_queries(pipeline: Pipeline, watch: Watcher) -> None:
    """Compute every table with a query, each behind those that it reads."""
    log, spark = Path(pipeline.state) / "spark.log", pipeline.spark
    with spark_session(
        pipeline.name, spark.master, delta_settings(spark.conf), log, lambda: watch(Starting())
    ) as session:
        tables, stop = Tables(pipeline, analyze_here), threading.Event()
        queries = Refreshers(tables, partial(SparkQuery, session, pipeline), watch, stop, once=True)
        with queries.beside(_TIMEOUT):
            pass
