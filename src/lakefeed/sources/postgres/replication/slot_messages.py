"""The messages that a slot has up to an LSN, some at a time. The slot stays where it is.

The server decodes all that it is asked for before it gives the first message of it. So a long stretch is
asked for in steps, out of a temporary copy of the slot which moves on with each: the server decodes a step
while the one before is worked on. For each step it begins to read at the `restart_lsn`: of what an earlier
step gave, that costs a tenth of decoding it, but all of it where a transaction is not committed yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
from psycopg import sql

from lakefeed.errors import SourceError, SourceUnavailable
from lakefeed.sources.postgres.connection import Connection, one_row, quoted
from lakefeed.sources.postgres.copy_out import CopyOut
from lakefeed.sources.postgres.positions import lsn_text
from lakefeed.sources.postgres.replication.ahead import ReadingAhead
from lakefeed.sources.postgres.replication.slot import slot_named
from lakefeed.sources.postgres.replication.stream import PATIENCE, PIECE_BYTES, PIECE_MESSAGES
from lakefeed.text import first_line

_COPY = """
COPY (SELECT data FROM pg_catalog.{function}(
    {slot}, {end}, NULL, 'proto_version', '1', 'publication_names', {publication})
) TO STDOUT (FORMAT binary)
"""
_COPY_SLOT = """
SELECT slot_name FROM pg_catalog.pg_copy_logical_replication_slot(
    %s, ('lakefeed_' || pg_catalog.pg_backend_pid())::name, true)
"""
_log = logging.getLogger("lakefeed")
_SIGNATURE, _HEADER, _TRAILER = b"PGCOPY\n\xff\r\n\0", 19, b"\xff\xff"
_BEFORE_DATA = 6
"""Bytes of a row before the value of its only column: how many columns, and its length."""
_SHORTEST_STEP = 8 * 2**20
"""Bytes of WAL."""
_SHARE_OF_WAY = 3


def messages(
    connection: Connection,
    slot: str,
    publication: str,
    end: int,
    streamed: Callable[[int], Iterator[list[bytes]]],
) -> Iterator[list[bytes]]:
    """Yield lists of messages that fit into memory.

    `streamed` gives those from an LSN on by the streaming protocol: what is left where the server may not
    gather so many in temporary files.
    """
    known = slot_named(connection, slot)
    copy = None
    is_long = known is not None and end - known.confirmed > 2 * _SHORTEST_STEP
    if is_long and not _waits_for_standbys(connection):
        copy = _copied_slot(connection, slot)
    with _decoding(slot):
        try:
            if copy is None:
                yield from _peeked(connection, slot, publication, end)
                return
            with closing(ReadingAhead(connection, _stepped(connection, copy, publication, end))) as ahead:
                yield from ahead
            connection.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", [copy])
        except _TooManyFiles as error:
            _log.debug("the slot %s is read by the streaming protocol: %s", slot, error)
            # The copy has gone with the error.
            yield from streamed(error.start)


class _TooManyFiles(Exception):
    """The server may not gather the messages in temporary files; none from `start` on has been given."""

    def __init__(self, start: int, error: psycopg.Error) -> None:
        super().__init__(first_line(error))
        self.start = start


@contextmanager
def _decoding(slot: str) -> Iterator[None]:
    """Say what helps where the server fails at its own WAL: it does so again each time, whoever asks."""
    try:
        yield
    except (psycopg.errors.InternalError_, psycopg.errors.UndefinedObject) as error:
        # A publication that was not there when the changes were made; not so a slot that is gone.
        if isinstance(error, psycopg.errors.UndefinedObject) and "pgoutput" not in (error.diag.context or ""):
            raise
        raise SourceError(
            f"the server fails to decode the changes of the replication slot {slot}: {first_line(error)}\n"
            "It fails whoever reads them. To go on, run once with `on_slot_loss: snapshot`, which reads all "
            f"rows anew, after this statement: SELECT pg_drop_replication_slot('{slot}')"
        ) from error


def _waits_for_standbys(connection: Connection) -> bool:
    """Whether the server keeps changes of a slot back until standbys have them: not those of a copy."""
    asked = "SELECT pg_catalog.current_setting('synchronized_standby_slots', true)"
    return bool(one_row(connection, asked)[0])


def _copied_slot(connection: Connection, slot: str) -> str | None:
    """The name of a copy that goes with the connection; None where the server makes none."""
    try:
        return str(one_row(connection, _COPY_SLOT, [slot])[0])
    except (
        psycopg.errors.ConfigurationLimitExceeded,
        psycopg.errors.DuplicateObject,
        psycopg.errors.FeatureNotSupported,
        psycopg.errors.ObjectNotInPrerequisiteState,
    ):
        # No slot is free, somebody else has that name, or the server is of a kind that copies none.
        return None


def _stepped(connection: Connection, copy: str, publication: str, end: int) -> Iterator[list[bytes]]:
    at, in_vain = 0, False
    while at < end:
        slot = slot_named(connection, copy)
        if slot is None:
            raise SourceUnavailable(f"the copy {copy} of the replication slot has gone while it was read")
        at = end if in_vain else _next_step(max(at, slot.confirmed), slot.restart, end)
        # A transaction that is longer than the step, or nothing of ours: the next would be in vain, too.
        in_vain = True
        try:
            for piece in _given(connection, "pg_logical_slot_get_binary_changes", copy, publication, at):
                in_vain = False
                yield piece
        except psycopg.errors.ConfigurationLimitExceeded as error:
            raise _TooManyFiles(slot.confirmed, error) from error


def _next_step(at: int, restart: int, end: int) -> int:
    """Where a step ends: the further it is from where the server begins to read, the longer it is."""
    step = max(_SHORTEST_STEP, (at - restart) // _SHARE_OF_WAY)
    return end if end - at < step + _SHORTEST_STEP else at + step


def _peeked(connection: Connection, slot: str, publication: str, end: int) -> Iterator[list[bytes]]:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            yield from _given(connection, "pg_logical_slot_peek_binary_changes", slot, publication, end)
            return
        except psycopg.errors.ConfigurationLimitExceeded as error:
            raise _TooManyFiles(0, error) from error
        except psycopg.errors.ObjectInUse as error:
            # Another task of this source, or the one that moves the slot on.
            if time.monotonic() > until:
                raise SourceUnavailable(
                    f"the replication slot {slot} is in use: {str(error).splitlines()[0]}.\n"
                    "Only Lakefeed may read it; stop whoever else does."
                ) from error
            time.sleep(0.02)


def _given(
    connection: Connection, function: str, slot: str, publication: str, end: int
) -> Iterator[list[bytes]]:
    """The messages of one question, in pieces."""
    statement = sql.SQL(_COPY).format(
        function=sql.Identifier(function),
        slot=sql.Literal(slot),
        end=sql.Literal(lsn_text(end)),
        publication=sql.Literal(quoted(publication)),
    )
    copied = CopyOut(connection, statement.as_bytes(connection))
    while rows := copied.take(PIECE_BYTES, PIECE_MESSAGES):
        if rows[0].startswith(_SIGNATURE):
            rows[0] = rows[0][_HEADER:]
        if rows[-1] == _TRAILER:
            rows.pop()
        piece = [row[_BEFORE_DATA:] for row in rows if row]
        if piece:
            yield piece
