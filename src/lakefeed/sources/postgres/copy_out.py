"""What a COPY sends, some rows at a time."""

from __future__ import annotations

import select

import psycopg
from psycopg import pq

from lakefeed.errors import SourceUnavailable
from lakefeed.sources.postgres.connection import Connection


class CopyOut:
    """The rows of one COPY, each as its bytes. Until `take` gives none, the connection takes no question."""

    def __init__(self, connection: Connection, statement: bytes) -> None:
        """Start it. Raises psycopg's errors, here or later."""
        self._pgconn = connection.pgconn
        result = self._pgconn.exec_(statement)
        if result.status != pq.ExecStatus.COPY_OUT:
            raise psycopg.errors.error_from_result(result)
        self._readable = select.poll()
        self._readable.register(self._pgconn.socket, select.POLLIN)
        self._is_done = False

    def take(self, most_bytes: int, most_rows: int) -> list[bytes]:
        """The next rows, one more than fit at most; none at the end."""
        rows: list[bytes] = []
        add, get, left = rows.append, self._pgconn.get_copy_data, most_bytes
        while left > 0 and len(rows) < most_rows and not self._is_done:
            # Waiting for the next row in `get_copy_data` would stop every other thread.
            count, data = get(1)
            if count > 0:
                # Views are objects that Python's collector visits over and over, which costs more than this.
                add(bytes(data))
                left -= count
            elif count == 0:
                self._readable.poll()
                self._pgconn.consume_input()
            else:
                self._end()
        return rows

    def _end(self) -> None:
        """What ends a COPY says whether it came to its end; the connection takes questions again."""
        self._is_done = True
        error: psycopg.Error | None = None
        while (end := self._pgconn.get_result()) is not None:
            if end.status != pq.ExecStatus.COMMAND_OK:
                error = error or psycopg.errors.error_from_result(end)
        if error:
            raise error
        if self._pgconn.status != pq.ConnStatus.OK:
            raise SourceUnavailable("the connection to Postgres broke while rows were copied")
