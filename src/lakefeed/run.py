"""A run that can be looked at: the engine, and around it whoever watches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lakefeed.engine.report import Watcher
from lakefeed.engine.supervisor import run as run_engine
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.watch.state import RunState
from lakefeed.watch.together import Together

_log = logging.getLogger("lakefeed")


def run(
    pipeline: Pipeline,
    *,
    once: bool = False,
    master: str | None = None,
    watcher: Watcher | None = None,
    logbook: RunState | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Run a pipeline, and serve its page if the file has `http`; see the engine's `run` for the rest.

    `logbook` is one that somebody else reads as well; without it, one is kept only if it is served.
    """
    run_engine(pipeline, once=once, master=master, watched=_watched(pipeline, logbook, watcher), stop=stop)


@contextmanager
def _watched(pipeline: Pipeline, logbook: RunState | None, watcher: Watcher | None) -> Iterator[Watcher]:
    """All who watch as one, for the length of a run; the page is served meanwhile."""
    watchers = [one for one in (logbook, watcher) if one is not None]
    with _served(pipeline, logbook) as serving:
        yield Together(*serving, *watchers)


@contextmanager
def _served(pipeline: Pipeline, logbook: RunState | None) -> Iterator[list[Watcher]]:
    """Those who must be told so that the page knows; none without `http`."""
    if pipeline.http is None:
        yield []
        return
    from lakefeed.watch.metrics import Metrics
    from lakefeed.watch.web.server import serving

    kept = logbook or RunState(pipeline)
    metrics = Metrics(kept)
    with serving(pipeline, kept, metrics) as address:
        _log.info("the page is at %s", address)
        yield [metrics] if logbook else [kept, metrics]
