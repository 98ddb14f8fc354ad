"""The command line as a user runs it: a process of its own, of which one sees output and exit code."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

from support.processes import spawn, tail, wait_until


class Process:
    """A running `lakefeed ...`, with all that it starts in a session of its own."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        cwd: Path | None,
        env: Mapping[str, str] | None,
        module: str = "lakefeed",
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lakefeed-run-"))
        self._said = " ".join((module, *arguments))
        self._popen = spawn(
            [sys.executable, "-m", module, *arguments],
            stdout=self._folder / "stdout",
            stderr=self._folder / "stderr",
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )
        # Taken now, it knows the driver from a stranger that gets the same pid later.
        self._driver = psutil.Process(self._popen.pid)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def stdout(self) -> str:
        return self._output("stdout")

    @property
    def stderr(self) -> str:
        return self._output("stderr")

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def wait(self, timeout: float = 120) -> int:
        """The exit code; a process that does not end in time is killed and fails the test."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill_tree()
            raise AssertionError(f"{self._said} did not end within {timeout} s:\n{self._tail()}") from None

    def wait_for(self, predicate: Callable[[], bool], timeout: float = 120) -> None:
        """Wait until something has happened; fails at once when the process ends before."""

        def happened() -> bool:
            # Asked first: what happened may be the last thing that the process did.
            running = self.running
            if predicate():
                return True
            assert running, f"{self._said} ended with code {self._popen.returncode}:\n{self._tail()}"
            return False

        wait_until(happened, timeout, lambda: f"not within {timeout} s of {self._said}:\n{self._tail()}")

    def memory(self) -> int:
        """Bytes that the process and all that it has started take together; shared pages count once."""
        total = 0
        for process in [self._driver, *self._children()]:
            with suppress(psutil.Error):
                total += process.memory_full_info().pss
        return total

    def terminate(self) -> None:
        """SIGTERM, as a service manager sends it."""
        self._popen.terminate()

    def interrupt(self) -> None:
        """SIGINT, as Ctrl-C sends it."""
        self._popen.send_signal(signal.SIGINT)

    def pause(self) -> None:
        """SIGSTOP the driver, its Java and its workers, as the sleep of a laptop does."""
        self._driver.suspend()
        for process in self._children():
            process.suspend()

    def resume(self) -> None:
        """SIGCONT to all of them."""
        for process in [*self._children(), self._driver]:
            process.resume()

    def kill_tree(self) -> None:
        """SIGKILL the driver at once, then the Java and the workers that it leaves behind."""
        left = self._children()
        self._popen.kill()
        self._popen.wait()
        # A worker that was forked meanwhile, or whose parent is gone, is still of the session.
        left += [process for process in psutil.process_iter() if _session(process) == self.pid]
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        _, alive = psutil.wait_procs(left, timeout=60)
        assert not alive, f"these processes of {self._said} survived SIGKILL: {alive}"

    def close(self) -> None:
        """Kill what still runs and delete the output."""
        self.kill_tree()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _children(self) -> list[psutil.Process]:
        try:
            return list(self._driver.children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def _output(self, name: str) -> str:
        return (self._folder / name).read_text(errors="replace")

    def _tail(self) -> str:
        return tail(self._folder / "stdout") + "\n" + tail(self._folder / "stderr")


def start(*arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Process:
    """Start `lakefeed` with these arguments; `env` is added to the environment of the tests."""
    return Process(arguments, cwd, env)


def run(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 120
) -> tuple[int, str, str]:
    """Run `lakefeed` to its end: exit code, standard output, standard error."""
    with start(*arguments, cwd=cwd, env=env) as process:
        code = process.wait(timeout)
        return code, process.stdout, process.stderr


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None
