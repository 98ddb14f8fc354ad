"""A run of a pipeline in the background of the program that started it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from lakefeed.errors import UsageError
from lakefeed.pipeline.result import RunResult
from lakefeed.text import counted

_running: list[Run] = []
_lock = threading.Lock()


class Run:
    """A run in a thread of its own; `Pipeline.start` makes it.

    As a context manager, it is stopped at the end of the block, and an error that ended it is raised there.
    """

    def __init__(
        self,
        name: str,
        state: str,
        work: Callable[[threading.Event], None],
        result: Callable[[], RunResult],
        *,
        has_own_spark: bool,
    ) -> None:
        self._name = name
        self._state = state
        self._work = work
        self._result = result
        self._has_own_spark = has_own_spark
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._do, name=f"lakefeed {name}", daemon=True)

    def begin(self) -> None:
        """Start the thread. Raises UsageError where a run of this program is in the way."""
        with _lock:
            for other in _running:
                other._make_room(self)
            _running.append(self)
            self._thread.start()

    def _make_room(self, new: Run) -> None:
        if (self._name, self._state) == (new._name, new._state):
            raise UsageError(
                f"pipeline {self._name} already runs in this program.\n"
                "Stop that run first: call stop() and wait() on the object that start() returned."
            )
        if self._has_own_spark:
            raise UsageError(
                f"pipeline {self._name} runs in this program and will end its Spark session when it stops.\n"
                "Stop that run first. To run both, create a session for both before you start them:\n"
                "SparkSession.builder.getOrCreate()"
            )

    def _do(self) -> None:
        try:
            self._work(self._stop)
        except BaseException as error:
            self._error = error
        finally:
            with _lock:
                _running.remove(self)

    @property
    def running(self) -> bool:
        """Whether it has not come to its end."""
        return self._thread.is_alive()

    @property
    def result(self) -> RunResult:
        """What it has done so far; after its end, all that it did, also when an error ended it."""
        return self._result()

    def stop(self) -> None:
        """Ask it to end after the running batch, and come back at once; `wait` waits for it."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> RunResult:
        """Wait for the end, and return what was done. Raises the error that ended the run.

        Raises TimeoutError after `timeout` seconds; the run continues.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"pipeline {self._name} is still running; call stop() to end it")
        if self._error is not None:
            raise self._error
        return self._result()

    def __enter__(self) -> Run:
        """Go on."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop and wait; an error of the block is not hidden by one of the run."""
        self.stop()
        if kind is None:
            self.wait()
        else:
            self._thread.join()

    def __repr__(self) -> str:
        """`<Run of shop: running, 990 rows>`."""
        state = "running" if self.running else "failed" if self._error else "ended"
        return f"<Run of {self._name}: {state}, {counted(self.result.rows, 'row')}>"
