"""Reading ahead: a thread takes what comes next from the server while what came before is worked on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

import psycopg

from lakefeed.sources.postgres.connection import Connection

_MOST_BYTES = 24 * 2**20
"""Bytes of messages that may wait, beside one list of them that does not fit."""
_ASK_AGAIN = 0.2


class ReadingAhead:
    """Messages that a thread reads from a connection, which nobody else uses before `close`."""

    def __init__(self, connection: Connection, messages: Iterator[list[bytes]]) -> None:
        """Start to read."""
        self._connection, self._messages = connection, messages
        self._waiting: deque[tuple[list[bytes], int]] = deque()
        self._bytes = 0
        self._is_over = self._is_closed = False
        self._error: BaseException | None = None
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="postgres-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[list[bytes]]:
        """The messages in their order; raises what reading them has raised."""
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._is_over)
                if not self._waiting:
                    break
                messages, size = self._waiting.popleft()
                self._bytes -= size
                self._news.notify_all()
            yield messages
        if self._error:
            raise self._error

    def close(self) -> None:
        """Let the thread end, whatever it waits for; a connection that it was cut off from is of no use."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        while not self._is_over:
            # What it waits for may not have begun yet: then the server has nothing to cancel.
            with suppress(psycopg.Error):
                self._connection.cancel()
            self._thread.join(_ASK_AGAIN)
        self._thread.join()

    def _read(self) -> None:
        try:
            for messages in self._messages:
                size = sum(map(len, messages))
                with self._news:
                    self._news.wait_for(lambda: self._bytes < _MOST_BYTES or self._is_closed)
                    if self._is_closed:
                        break
                    self._waiting.append((messages, size))
                    self._bytes += size
                    self._news.notify_all()
        except BaseException as error:
            self._error = error
        with self._news:
            self._is_over = True
            self._news.notify_all()
