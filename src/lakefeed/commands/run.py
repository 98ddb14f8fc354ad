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
from lakefeed.errors import LakefeedError
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Redactor
from lakefeed.run import run as run_watched
from lakefeed.units import format_duration
from lakefeed.watch.log import start_logging
from lakefeed.watch.log_lines import LogLines
from lakefeed.watch.state import RunState
from lakefeed.watch.terminal import LiveProgress

_log = logging.getLogger("lakefeed")


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
) -> None:
    """Run a pipeline until you stop it; Ctrl-C or SIGTERM ends it after the current batch.

    The exit code is 0 then, also with --once: nothing failed, and the next start continues from there.
    """
    if log_format is LogFormat.json:
        # Warnings about the file are JSON lines, too.
        start_logging(Redactor(), quiet=quiet, json=True)
    pipeline = Pipeline.from_file(file, overrides or ())
    run_pipeline(
        pipeline,
        once=once,
        master=master,
        log_format=log_format,
        quiet=quiet,
        called=called_as(file, overrides),
    )


def run_pipeline(
    pipeline: Pipeline,
    *,
    once: bool,
    master: str | None = None,
    log_format: LogFormat | None = None,
    quiet: bool = False,
    called: str = "",
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
        _progress(pipeline, state, redactor, stop, called, lines=lines, waits=not once) as progress,
    ):
        run_watched(pipeline, once=once, master=master, watch=progress.watch, state=state, stop=stop)


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
