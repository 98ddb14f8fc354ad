"""One instance of a pipeline on a machine: the lock of a run, which whoever changes its tables takes too."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lakefeed.errors import Fenced, UsageError
from lakefeed.pipeline.model import Pipeline


@contextmanager
def only_instance(pipeline: Pipeline) -> Iterator[None]:
    """Refuse a second instance on this machine at once; elsewhere the tables' own fence does it."""
    name, state = pipeline.name, Path(pipeline.state) / pipeline.name
    lock: IO[str]
    try:
        state.mkdir(parents=True, exist_ok=True)
        lock = (state / "lock").open("w")
    except OSError as error:
        raise UsageError(
            f"{state} cannot be written: {error.strerror}.\nSet `state` to a folder that can."
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Fenced(
                f"pipeline {name} is already running on this machine (its lock is {state / 'lock'}). "
                "Stop that one first, or give this one another `name`."
            ) from error
        yield
