"""Messages of a slot out of the streaming protocol, for transactions that SQL functions cannot give.

A function of the server gathers all messages before it gives the first one, in files that `temp_file_limit`
counts. A WAL sender sends each message as it is decoded.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
from psycopg import pq, sql

from lakefeed.errors import SourceUnavailable
from lakefeed.sources.postgres.connection import Connection, connect, quoted
from lakefeed.sources.postgres.positions import lsn_text
from lakefeed.sources.postgres.source import PostgresSource

PIECE_BYTES, PIECE_MESSAGES = 8 * 2**20, 20_000
"""How much of a stream is in memory at once."""
PATIENCE = 120.0
"""Seconds that a task waits for a slot which another one reads."""

_START = "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {})"
_MESSAGE, _KEEPALIVE = b"w", b"k"
_BEFORE_MESSAGE = 25
"""Bytes before a message of the plugin: a sign, two LSNs and a time."""
_BEGIN, _COMMIT = b"B", b"C"
# Nothing was written or flushed: the slot stays where it is. The last byte asks for a keepalive.
_ASK_FOR_KEEPALIVE = b"r" + struct.pack(">QQQqB", 0, 0, 0, 0, 1)
_QUIET_MILLISECONDS = 200


def streamed(
    source: PostgresSource, slot: str, publication: str, start: int, end: int
) -> Iterator[list[bytes]]:
    """Yield the messages of transactions with `start <= commit LSN < end`, in pieces. The slot does not move.

    A `start` that the slot has passed already, such as 0, is where the slot is.
    """
    with closing(connect(source, replication="database")) as connection:
        connection.execute("SET wal_sender_timeout = 0")
        _begin(connection, slot, publication, start)
        piece: list[bytes] = []
        size = 0
        for message in _until(connection, end):
            piece.append(message)
            size += len(message)
            if size >= PIECE_BYTES or len(piece) >= PIECE_MESSAGES:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece


def _begin(connection: Connection, slot: str, publication: str, start: int) -> None:
    statement = sql.SQL(_START).format(
        sql.Identifier(slot), sql.SQL(lsn_text(start)), sql.Literal(quoted(publication))
    )
    until = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute(statement)
            return
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _until(connection: Connection, end: int) -> Iterator[bytes]:
    """Messages up to the first transaction with a commit LSN from `end` on, or until the server is there."""
    pgconn, is_open = connection.pgconn, False
    readable = select.poll()
    readable.register(pgconn.socket, select.POLLIN)
    while True:
        count, data = pgconn.get_copy_data(1)
        if count < 0:
            raise _broken(connection)
        if count == 0:
            if not readable.poll(_QUIET_MILLISECONDS):
                pgconn.put_copy_data(_ASK_FOR_KEEPALIVE)
                pgconn.flush()
            pgconn.consume_input()
            continue
        kind = bytes(data[:1])
        if kind == _MESSAGE:
            message = bytes(data[_BEFORE_MESSAGE:])
            if message[:1] == _BEGIN:
                if int.from_bytes(message[1:9]) >= end:
                    return
                is_open = True
            elif message[:1] == _COMMIT:
                is_open = False
            yield message
        elif kind == _KEEPALIVE and not is_open and int.from_bytes(data[1:9]) >= end:
            return


def _broken(connection: Connection) -> Exception:
    """Why the server has ended the stream."""
    while (result := connection.pgconn.get_result()) is not None:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            return psycopg.errors.error_from_result(result)
    return SourceUnavailable("the server has ended the stream of changes")
