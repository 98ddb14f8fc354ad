"""Requests that wait: for the disk, and for the tables."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from lakefeed.sources.http.journal.frame import Batch
from lakefeed.sources.http.journal.journal import Append, Journal


class PendingAppends:
    """Batches on their way to the disk."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._loop: asyncio.AbstractEventLoop | None = None
        journal.settled = self._settled

    async def append(self, batch: Batch) -> Append:
        """Come back when the batch is durable, or cannot be."""
        self._loop = asyncio.get_running_loop()
        append = Append(batch, self._loop.create_future())
        self._journal.append(append)
        await append.waiter
        return append

    def _settled(self, group: Sequence[Append]) -> None:
        """Called by the thread of the journal, once for all requests of a write."""
        if self._loop is not None:
            # The loop may have ended while the disk was busy.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_finish_all, group)


class TableWaiters:
    """Requests that wait until all tables of their stream have their events, but those that have stopped."""

    def __init__(self, takers: Mapping[str, Collection[str]]) -> None:
        self._takers = takers
        """The tables that take each stream."""
        self._reached: dict[str, Mapping[str, int]] = {}
        self._stopped: set[str] = set()
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, int, asyncio.Future[None]]] = []

    async def wait(self, stream: str, position: int, seconds: float) -> bool:
        """Whether the tables have an event before the time is up; at once, where all of them have stopped."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = stream, position, future
        with self._lock:
            if self._have(stream, position):
                return True
            if self._none_goes_on(stream):
                return False
            self._waiting.append(entry)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.remove(entry)
        with self._lock:
            return self._have(stream, position)

    def reach(self, table: str, positions: Mapping[str, int]) -> None:
        """A table, or one of its route, has all events before these positions. Called by the flows."""
        with self._lock:
            self._reached[table] = positions
            # One that was stopped and repaired goes on.
            self._stopped.discard(table)
            self._release()

    def stop(self, table: str) -> None:
        """A table, or one of its route, has stopped for good: nothing is to be waited for."""
        with self._lock:
            self._stopped.add(table)
            self._release()

    def stopped(self, stream: str) -> list[str]:
        """The tables of a stream that have stopped."""
        with self._lock:
            return sorted(name for name in self._stopped if _base(name) in self._takers[stream])

    def _release(self) -> None:
        for stream, position, future in self._waiting:
            if self._have(stream, position) or self._none_goes_on(stream):
                # Its loop may have ended.
                with suppress(RuntimeError):
                    future.get_loop().call_soon_threadsafe(_finish, future)

    def _none_goes_on(self, stream: str) -> bool:
        return self._stopped.issuperset(self._takers[stream])

    def _have(self, stream: str, position: int) -> bool:
        """Whether each table that takes the stream is beyond a position, with all tables of its route."""
        wanted = set(self._takers[stream]) - self._stopped
        reached = {name: at for name, at in self._reached.items() if _base(name) in wanted - self._stopped}
        if not wanted or {_base(name) for name in reached} != wanted:
            return False
        return all(at.get(stream, 0) > position for name, at in reached.items() if name not in self._stopped)


def _base(table: str) -> str:
    """The table of the pipeline file that a table of a route belongs to."""
    return table.partition("/")[0]


def _finish_all(group: Sequence[Append]) -> None:
    for append in group:
        _finish(append.waiter)


def _finish(future: asyncio.Future[None]) -> None:
    """Whoever waited may have gone meanwhile."""
    if not future.done():
        future.set_result(None)
