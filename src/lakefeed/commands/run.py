"""`lakefeed run`: run a pipeline."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lakefeed.pipeline.model import Pipeline
    from lakefeed.pipeline.secrets import Redactor


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")],
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then exit.")] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the file: --set flush.interval=1s"),
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", help="The Spark master, in place of the file's.")
    ] = None,
) -> None:
    """Run a pipeline until it is stopped; Ctrl-C or SIGTERM end it after the running batch."""
    from lakefeed.pipeline.model import Pipeline

    run_pipeline(Pipeline.from_file(file, overrides or ()), once=once, master=master)


def run_pipeline(pipeline: Pipeline, *, once: bool, master: str | None = None) -> None:
    """Run with progress on the terminal, or log lines without one; signals end it well."""
    from lakefeed.engine.supervisor import run as run_engine
    from lakefeed.pipeline.secrets import Redactor
    from lakefeed.watch.log import start_logging

    redactor = Redactor.of(pipeline)
    start_logging(redactor, debug="--debug" in sys.argv)
    stop = stopped_by_signals()
    with redactor.guarding(), _progress(pipeline.name, redactor) as watcher:
        run_engine(pipeline, once=once, master=master, watcher=watcher, stop=stop)


def stopped_by_signals() -> threading.Event:
    """An event that SIGTERM and Ctrl-C set. A second signal ends the process at once, as everywhere."""
    stop = threading.Event()

    def end(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            raise SystemExit(128 + number)
        stop.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    return stop


def _progress(name: str, redactor: Redactor) -> AbstractContextManager[Any]:
    if sys.stderr.isatty():
        from lakefeed.watch.live import LiveProgress

        return LiveProgress(name, redactor)
    from lakefeed.watch.lines import LogLines

    return nullcontext(LogLines())
