"""One instance of a pipeline on a machine: the lock of a run, which whoever changes its tables takes too."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
        lock = (state / "lock").open("a+")
    except OSError as error:
        raise UsageError(
            f"{state} cannot be written: {error.strerror}.\nSet `state` to a folder that can."
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Fenced(
                f"pipeline {name} is already running on this machine{_process(lock)}; its lock is "
                f"{state / 'lock'}.\nStop that process first. Do not change `name`: a pipeline with a new "
                f"name\nstarts from the beginning and reads all events again, into tables of its own."
            ) from error
        _sign(lock)
        yield


def _sign(lock: IO[str]) -> None:
    """Leave the number of this process, for the message to a second one; a full disk is no reason to stop."""
    with suppress(OSError):
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()


def _process(lock: IO[str]) -> str:
    lock.seek(0)
    number = lock.read(20)
    return f" as process {number}" if number.isdigit() else ""
