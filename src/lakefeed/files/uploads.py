"""Files on their way to an object store, while the next ones are encoded."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

_AT_ONCE = 8
"""As many files wait in memory at most, each with what is left of its last part."""


class Uploads:
    """The ends of files that are sent side by side. Used by one thread, which waits for all in the end.

    Whoever adds one more than may run at once waits for one of them. What one raises is raised when the next
    is added, or by `wait`.
    """

    def __init__(self) -> None:
        """No thread is started before there is something to send."""
        self._pool: ThreadPoolExecutor | None = None
        self._running: set[Future[None]] = set()

    def add(self, send: Callable[[], None]) -> None:
        """Send the end of a file."""
        self._pool = self._pool or ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="upload")
        if len(self._running) >= _AT_ONCE:
            done, self._running = wait(self._running, return_when=FIRST_COMPLETED)
            for one in done:
                one.result()
        self._running.add(self._pool.submit(send))

    def wait(self) -> None:
        """Wait until all are there; raises what one of them raised, when none is under way any more."""
        running, self._running = self._running, set()
        if self._pool is None:
            return
        wait(running)
        self._pool.shutdown()
        self._pool = None
        for one in running:
            one.result()
