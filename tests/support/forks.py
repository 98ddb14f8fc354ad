"""Processes that a test may kill, forked from one that has imported Lakefeed: none starts an interpreter."""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline

END_SECONDS = 300.0
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        "support.forks",
        "deltalake",
        "lakefeed.commands.run",
        "lakefeed.reports.verify",
        "lakefeed.sources.files.client",
        "lakefeed.sources.kafka.client",
        "lakefeed.sources.postgres.client",
        "pyspark.sql",
        "pytest",
    ]
)


def start(
    function: Callable[..., object],
    *arguments: object,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> BaseProcess:
    """Start a function of an importable module in a process that dies with the test process.

    Its environment is that of the test and `env`. Its output is appended to `log`.
    """
    environment = {**os.environ, **(env or {})}
    process = _forks.Process(target=_call, args=(function, arguments, environment, log))
    process.start()
    return process


def ended(process: BaseProcess, timeout: float = END_SECONDS) -> int:
    """Wait for its end: the exit code, -9 for SIGKILL. One that does not end in time is killed."""
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"a process did not end within {timeout} s")
    return process.exitcode


def run_and_kill(file: Path, point: str = "", function: Callable[[Path], object] | None = None) -> int:
    """Read what is there, without Spark, in a process that dies at a point such as `files_written:2`.

    Returns its exit code.
    """
    return ended(start(function or read_all, file, env={"LAKEFEED_KILL_AT": point}))


def run_until_killed(file: Path, point: str, function: Callable[[Path], object] | None = None) -> None:
    """The same of a run that must come to this point."""
    assert run_and_kill(file, point, function) == -signal.SIGKILL


def read_all(file: Path) -> None:
    """Read everything that is there now."""
    run_inline(Pipeline.from_file(file))


def call(name: str, *arguments: object) -> None:
    """Call a function by the names of its module and its own, as `faults.test_kill_changes:die`.

    pytest gives the modules of tests names by which no other process can import them.
    """
    module, _, function = name.partition(":")
    getattr(importlib.import_module(module), function)(*arguments)


def _call(
    function: Callable[..., object], arguments: tuple[object, ...], env: Mapping[str, str], log: Path | None
) -> None:
    # Asks the kernel for SIGKILL when the parent dies, which dies with the test process.
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl:
        prctl(1, 9)
    os.environ.clear()
    os.environ.update(env)
    if log is not None:
        with log.open("ab") as out:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
    function(*arguments)
