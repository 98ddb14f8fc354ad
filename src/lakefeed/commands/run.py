"""`lakefeed run`: run a pipeline."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from lakefeed.commands.options import Overrides, PipelineFile
from lakefeed.commands.options import called as called_as
from lakefeed.engine.run_events import AllRefused, Committed, DeadLettersWritten, RunEvent, all_of
from lakefeed.errors import LakefeedError, TableError, UsageError
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Redactor
from lakefeed.run import run as run_watched
from lakefeed.sources.files.source import FilesSource
from lakefeed.text import counted
from lakefeed.units import format_duration
from lakefeed.watch.log import start_logging
from lakefeed.watch.log_lines import LogLines
from lakefeed.watch.state import RunState
from lakefeed.watch.terminal import LiveProgress

_log = logging.getLogger("lakefeed")


ReadMovedFiles = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="Read files again that look like files that were read from another folder: `on_move: read` "
        "for every source of files with `on_move: fail`.",
    ),
]


class LogFormat(StrEnum):
    """How log lines are written."""

    text = "text"
    json = "json"


def run(
    file: PipelineFile,
    once: Annotated[
        bool, typer.Option("--once", help="Read the events that are there now, then exit.")
    ] = False,
    overrides: Overrides = None,
    master: Annotated[
        str | None, typer.Option("--master", help="The Spark master; overrides the file's.")
    ] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            "--log-format",
            help="Write log lines, as text or as JSON. Left out: a live table on a terminal, else text.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")] = False,
    allow_dead_letters: Annotated[
        bool,
        typer.Option(
            "--allow-dead-letters",
            help="With --once: exit with 0 also if a table without rows has refused every event.",
        ),
    ] = False,
    fail_on_dead_letters: Annotated[
        bool,
        typer.Option(
            "--fail-on-dead-letters",
            help="With --once: exit with 3 if there are new dead letters. All rows are written nevertheless.",
        ),
    ] = False,
    yes: ReadMovedFiles = False,
) -> None:
    """Run a pipeline until you stop it; Ctrl-C or SIGTERM ends it after the current batch.

    The exit code is 0 then, also with --once: nothing failed, and the next start continues from there. With
    --once, it is 1 if a table that has no rows refused every event.
    """
    if not once and (allow_dead_letters or fail_on_dead_letters):
        option = "--allow-dead-letters" if allow_dead_letters else "--fail-on-dead-letters"
        raise UsageError(f"{option} has an effect only with --once; add --once, or leave it out")
    if allow_dead_letters and fail_on_dead_letters:
        raise UsageError("--allow-dead-letters and --fail-on-dead-letters contradict each other; give one")
    if log_format is LogFormat.json:
        # Warnings about the file are JSON lines, too.
        start_logging(Redactor(), quiet=quiet, json=True)
    pipeline = Pipeline.from_file(file, overrides or ())
    if yes:
        pipeline = _reading_moved_files(pipeline)
    run_pipeline(
        pipeline,
        once=once,
        master=master,
        log_format=log_format,
        quiet=quiet,
        called=called_as(file, overrides),
        refused=RefusedEvents(pipeline, fails_on_any=fail_on_dead_letters, allows_all=allow_dead_letters)
        if once
        else None,
    )


class RefusedEvents:
    """Counts the dead letters of a run that ends by itself, and decides how it ends."""

    def __init__(self, pipeline: Pipeline, *, fails_on_any: bool, allows_all: bool) -> None:
        self._file = pipeline.file_argument
        self._fails_on_any, self._allows_all = fails_on_any, allows_all
        self._count = 0
        self._without_rows: dict[str, AllRefused] = {}

    def watch(self, event: RunEvent) -> None:
        """Count new dead letters, and note tables that refuse everything until they get a row."""
        match event:
            case DeadLettersWritten(counts=counts):
                self._count += sum(counts.values())
            case AllRefused(table=table):
                self._without_rows[table] = event
            case Committed(table=table, rows=rows) if rows:
                for name in (table, table.partition("/")[0]):
                    self._without_rows.pop(name, None)

    def end(self) -> None:
        """Raise TableError, or Exit with 3, where the run has not ended well."""
        if self._without_rows and not self._allows_all:
            table, refused = min(self._without_rows.items())
            raise TableError(
                f"table {table}: {refused.text}; it has no row yet.\n"
                f"Look at `lakefeed dead-letters list {self._file}`, correct the file, then type "
                f"`lakefeed dead-letters replay {self._file} --yes`.\n"
                "Or add --allow-dead-letters if this is meant."
            )
        if self._count and self._fails_on_any:
            _log.error("%s, and --fail-on-dead-letters is given", counted(self._count, "new dead letter"))
            raise typer.Exit(3)


def _reading_moved_files(pipeline: Pipeline) -> Pipeline:
    """The pipeline with sources that read files again which they would stop at."""
    sources = {
        name: source.model_copy(update={"on_move": "read"})
        if isinstance(source, FilesSource) and source.on_move == "fail"
        else source
        for name, source in pipeline.sources.items()
    }
    return pipeline.model_copy(update={"sources": sources})


def run_pipeline(
    pipeline: Pipeline,
    *,
    once: bool,
    master: str | None = None,
    log_format: LogFormat | None = None,
    quiet: bool = False,
    called: str = "",
    refused: RefusedEvents | None = None,
) -> None:
    """Run with progress on the terminal, or log lines without one; signals end it well.

    `called` is the pipeline as other commands take it: the last lines of the run then name some of them.
    """
    redactor, state = Redactor.of(pipeline), RunState(pipeline)
    in_json = log_format is LogFormat.json
    start_logging(redactor, debug="--debug" in sys.argv, quiet=quiet, json=in_json)
    stop = stopped_by_signals()
    lines = quiet or log_format is not None or not sys.stderr.isatty()
    with (
        _ending_in_json() if in_json else nullcontext(),
        redactor.guarding(),
    ):
        with _progress(pipeline, state, redactor, stop, called, lines=lines, waits=not once) as progress:
            watch = all_of(progress.watch, refused.watch) if refused else progress.watch
            run_watched(pipeline, once=once, master=master, watch=watch, state=state, stop=stop)
        if refused and not stop.is_set():
            refused.end()


@contextmanager
def _ending_in_json() -> Iterator[None]:
    """Log the error that ends a run as a JSON line like the others, for programs that parse them."""
    try:
        yield
    except LakefeedError as error:
        if not error.reported:
            _log.error("%s", error, extra={"fields": {"event": "failed"}})
        raise typer.Exit(error.exit_code) from None


def stopped_by_signals() -> threading.Event:
    """An event that SIGTERM and Ctrl-C set. A second signal ends the process at once, as a kill does."""
    stop = threading.Event()
    asked = False

    def end(number: int, _: FrameType | None) -> None:
        nonlocal asked
        if asked:
            _end_at_once(number)
        asked = True
        # Not here: the signal may have come while this thread held the lock of the event.
        threading.Thread(target=stop.set, name="stop", daemon=True).start()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    return stop


def _end_at_once(number: int) -> NoReturn:
    """End without closing anything, as that may wait: the JVM ends when this process has ended.

    What is not committed is dropped whole, and the next start continues from the tables.
    """
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    text = "ended at once; the running batch is dropped whole, the next start reads it again"
    os.write(2, f"{show_cursor}\n{text}\n".encode())
    os._exit(128 + number)


def _progress(
    pipeline: Pipeline,
    state: RunState,
    redactor: Redactor,
    stop: threading.Event,
    called: str,
    *,
    lines: bool,
    waits: bool,
) -> AbstractContextManager[Any]:
    if lines:
        return LogLines(state, called, stop, waits=waits)
    timeout = format_duration(pipeline.stop_timeout)
    return LiveProgress(state, redactor, called=called, stop=stop, patience=timeout, waits=waits)
