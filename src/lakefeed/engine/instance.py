"""One instance of a pipeline on a machine: the lock of a run, which whoever changes its tables takes too."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO

from lakefeed.errors import Fenced, UsageError
from lakefeed.pipeline.pipeline import Pipeline


@contextmanager
def only_instance(pipeline: Pipeline) -> Iterator[Path]:
    """Refuse a second instance on this machine at once; elsewhere the tables' own fence does it.

    Yields the folder for what a run keeps beside its tables.
    """
    name, state = pipeline.name, Path(pipeline.state) / pipeline.name
    with _opened(state) as lock:
        if not _taken(lock, fcntl.LOCK_EX):
            raise Fenced(
                f"pipeline {name} is already running on this machine{_process(lock)}; its lock is "
                f"{state / 'lock'}.\nStop that process first. Do not change `name`: a pipeline with a new "
                f"name\nstarts from the beginning and reads all events again, into tables of its own."
            )
        _sign(lock)
        yield state


@contextmanager
def one_of_many(pipeline: Pipeline) -> Iterator[Path]:
    """The same for processes that share the partitions of a source: each gets a folder of its own.

    Whoever must be alone, such as a rewind, is refused while one of them runs, and they while it does.
    """
    state = Path(pipeline.state) / pipeline.name
    with _opened(state) as shared:
        if not _taken(shared, fcntl.LOCK_SH):
            raise Fenced(
                f"pipeline {pipeline.name} is in use on this machine{_process(shared)}, by a command that "
                "must be alone.\nWait for its end, or stop it, then start again."
            )
        for number in count(1):
            own = state / f"process-{number}"
            with _opened(own) as lock:
                if _taken(lock, fcntl.LOCK_EX):
                    _sign(lock)
                    yield own
                    return


def _opened(state: Path) -> IO[str]:
    try:
        state.mkdir(parents=True, exist_ok=True)
        return (state / "lock").open("a+")
    except OSError as error:
        raise UsageError(
            f"{state} cannot be written: {error.strerror}.\nSet `state` to a folder that can."
        ) from error


def running(pipeline: Pipeline) -> str:
    """What runs the pipeline on this machine, for a plan to tell: ` as process 123`. None: an empty text."""
    try:
        with (Path(pipeline.state) / pipeline.name / "lock").open() as lock:
            try:
                # Processes that share a source have the lock together.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return _process(lock) or " as another process"
    except OSError:
        pass
    return ""


def _taken(lock: IO[str], kind: int) -> bool:
    """Whether the lock is ours now. Somebody who only looks whether it is free has it for a moment."""
    for pause in (0.0, 0.1, 0.1):
        time.sleep(pause)
        with suppress(BlockingIOError):
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
            return True
    return False


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
