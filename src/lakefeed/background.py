"""A run as the Python API starts it: in a thread, with log lines, a callback and a result."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lakefeed.engine.run_events import Committed, RunEvent, Watcher, all_of
from lakefeed.engine.spark.session import existing_session
from lakefeed.handles.tables import DEAD_LETTERS
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.result import Commit, RunResult, TableResult
from lakefeed.pipeline.run import Run
from lakefeed.pipeline.secrets import Redactor
from lakefeed.run import run
from lakefeed.watch.log import log_by_default
from lakefeed.watch.log_lines import LogLines
from lakefeed.watch.state import RunState
from lakefeed.watch.view import RunView


def start(
    pipeline: Pipeline,
    *,
    once: bool = False,
    master: str | None = None,
    on_commit: Callable[[Commit], None] | None = None,
) -> Run:
    """Start a run, and come back at once. Raises UsageError where another run is in the way."""
    log_by_default()
    state = RunState(pipeline)
    ended: list[RunView] = []

    def work(stop: threading.Event) -> None:
        try:
            with Redactor.of(pipeline).guarding(), LogLines(state, stop=stop, waits=not once) as lines:
                told = all_of(lines.watch, *([_telling(on_commit)] if on_commit else []))
                run(pipeline, once=once, master=master, watch=told, state=state, stop=stop)
        finally:
            ended.append(state.view())

    started = Run(
        pipeline.name,
        pipeline.state,
        work,
        lambda: _result(ended[0] if ended else state.view()),
        has_own_spark=existing_session() is None,
    )
    started.begin()
    return started


def _telling(on_commit: Callable[[Commit], None]) -> Watcher:
    """Call what the user gave for each commit to a table of theirs."""

    def watch(event: RunEvent) -> None:
        if isinstance(event, Committed) and event.table != DEAD_LETTERS:
            on_commit(
                Commit(
                    table=event.table,
                    source=event.source,
                    version=event.version,
                    rows=event.rows,
                    files=event.files,
                    bytes=event.size,
                    dead_letters=event.letters,
                    seconds=event.seconds,
                )
            )

    return watch


def _result(view: RunView) -> RunResult:
    tables = {
        one.name: TableResult(
            name=one.name,
            path=one.path,
            rows=one.written,
            dead_letters=one.codes,
            commits=one.commits,
            first_version=one.first_version,
            version=one.version if one.commits else None,
            seconds=one.commit_seconds,
        )
        for one in view.tables
    }
    return RunResult(view.pipeline, tables, view.now - view.began)
