"""Connections to Postgres, all with the settings that make values look the same whoever has set what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import conninfo, sql

from lakefeed.errors import SourceError, SourceUnavailable
from lakefeed.pipeline.secrets import Redactor, secret_strings
from lakefeed.sources.postgres.source import PostgresSource

SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "intervalstyle": "iso_8601",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
}
"""Settings of a role or a database change the text of values, also in the stream of changes."""
_SINCE = {140000: "idle_session_timeout", 170000: "transaction_timeout"}
"""More of them, by the version of the server that has them first."""
_CONNECT_SECONDS = 10
_AWAY = ("08", "40", "53", "57")
"""Classes of errors that pass: connections, conflicts with what a standby replays, too little of something,
statements that somebody cancels and a server that stops or starts."""

Connection = psycopg.Connection[Any]
LOCK_SECONDS = 10.0
"""How long a session waits for a lock that a statement such as DROP TABLE waits for as well."""


def connect(source: PostgresSource, **words: Any) -> Connection:
    """Connect, each statement a transaction of its own. Raises SourceUnavailable or SourceError."""
    given: dict[str, Any] = {
        "host": source.host,
        "port": source.port,
        "dbname": source.database,
        "user": source.user,
        "password": source.password,
        "options": " ".join(f"-c {name}={value}" for name, value in SESSION.items()),
        "client_encoding": "UTF8",
        **source.options,
    }
    known = {name: value for name, value in given.items() if value is not None}
    with postgres_errors(source):
        try:
            parts = conninfo.conninfo_to_dict(source.connection or "", **known)
        except psycopg.ProgrammingError:
            # What libpq says has parts of it, which may be those of a password.
            raise SourceError("`connection` of the source, or its options, cannot be parsed") from None
        if any("@" in host[1:] for host in str(parts.get("host") or "").split(",")) or _is_cut(source):
            # Of a URI, the rest of a password behind its first @ or /.
            raise SourceError(
                "`connection` of the source cannot be parsed: write an @ of a password as %40, and a / as %2F"
            )
        parts.setdefault("connect_timeout", _CONNECT_SECONDS)
        parts.setdefault("application_name", "lakefeed")
        parts.setdefault("keepalives_idle", 30)
        text = conninfo.make_conninfo("", **{name: str(value) for name, value in parts.items()})
        connection = psycopg.connect(text, autocommit=True, **words)
        version = connection.info.server_version
        for since, name in _SINCE.items():
            if version >= since:
                connection.execute(f"SET {name} = 0".encode())
        return connection


def _is_cut(source: PostgresSource) -> bool:
    """Whether the password of a URI has a `/`: what is before it was taken for the host and its port."""
    if "://" not in (source.connection or ""):
        return False
    parts = conninfo.conninfo_to_dict(source.connection or "")
    return "user" not in parts and "@" in str(parts.get("dbname") or "")


@contextmanager
def postgres_errors(source: PostgresSource) -> Iterator[None]:
    """What the server or the network says, in the errors of Lakefeed."""
    try:
        yield
    except psycopg.errors.UndefinedObject as error:
        # A snapshot that nobody holds any more: the batch is planned anew.
        raise SourceUnavailable(_told(source, error)) from error
    except psycopg.errors.LockNotAvailable as error:
        raise SourceUnavailable(
            f"{_told(source, error)}\nAnother statement holds the lock, or waits for it, such as an ALTER "
            "TABLE or a DROP TABLE; it is tried again when that has ended"
        ) from error
    except psycopg.ProgrammingError as error:
        raise SourceError(_told(source, error)) from error
    except psycopg.Error as error:
        state = error.sqlstate
        away = state is None or state.startswith(_AWAY) or isinstance(error, psycopg.errors.ObjectInUse)
        if isinstance(error, psycopg.OperationalError) and _is_refused(str(error)):
            away = False
        raise (SourceUnavailable if away else SourceError)(_told(source, error)) from error


def _is_refused(text: str) -> bool:
    """Whether the server does not let anybody in like this, however often it is asked."""
    words = ("authentication failed", "no pg_hba.conf entry", "does not exist", "permission denied")
    return any(word in text for word in words)


def _told(source: PostgresSource, error: psycopg.Error) -> str:
    redactor = Redactor(secret_strings(source.model_dump(include={"connection", "password", "options"})))
    lines = [line.strip() for line in redactor.redact(str(error)).splitlines() if line.strip()]
    text = "; ".join(lines[:2]) or type(error).__name__
    return f"Postgres ({where(source)}): {text}"


def limit_lock_waits(connection: Connection) -> None:
    """Let the transaction that was begun give up a lock that it waits for too long.

    A session that copies rows holds a lock of their table for another one: a DROP TABLE between the two
    would wait for the first, and the second for the DROP TABLE, for ever.
    """
    connection.execute(f"SET LOCAL lock_timeout = {round(LOCK_SECONDS * 1000)}".encode())


def one_row(connection: Connection, statement: str, values: Sequence[Any] | None = None) -> Any:
    """What a statement gives that always gives one row."""
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return row


def quoted(*names: str) -> str:
    """A name as SQL takes it, such as `"public"."orders"`."""
    return sql.Identifier(*names).as_string(None)


def where(source: PostgresSource) -> str:
    """Host, port and database, as messages name them."""
    try:
        parts = conninfo.conninfo_to_dict(source.connection or "")
    except psycopg.Error:
        parts = {}
    host = source.host or parts.get("host") or parts.get("hostaddr") or "local"
    port = source.port or parts.get("port") or 5432
    return f"{host}:{port}/{source.database or parts.get('dbname') or source.user or ''}"
