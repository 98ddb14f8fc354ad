"""Checks before the first byte: what keeps a database from being read, or hurts it, and what repairs that.

They only look, as the role that the pipeline connects as.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lakefeed.errors import SourceError
from lakefeed.figures import readable_seconds, readable_size
from lakefeed.sources import Finding
from lakefeed.sources.postgres.checks.examined import Examined
from lakefeed.sources.postgres.connection import Connection, quoted
from lakefeed.text import did_you_mean, listed, sentence

OLDEST, NEWEST = 13, 18
"""The versions of Postgres that are supported."""
OPERATIONS = ("insert", "update", "delete", "truncate")

_log = logging.getLogger("lakefeed")
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_ENOUGH_WAL = 1024**3


def tell_findings(source: str, found: Sequence[Finding], takes: Callable[[str], bool]) -> None:
    """Warn of what hurts tables that are taken; raises SourceError for what keeps any from being read."""
    for one in found:
        if one.state == "warn" and one.stream and takes(one.stream):
            _log.warning("source %s: %s %s", source, sentence(one.text), one.remedy)
    wrong = [one for one in found if one.state == "fail"]
    if wrong:
        told = [f"{sentence(one.text)}\n{one.remedy}" if one.remedy else one.text for one in wrong[:3]]
        raise SourceError(f"source {source}: " + "\n".join(told))


def findings(
    connection: Connection,
    publication: str,
    slot: str,
    tables: Sequence[str],
    *,
    rows_only: bool = False,
) -> list[Finding]:
    """Everything that was found; `tables` is what the file names, none for those of the publication.

    `rows_only`: changes are not read, so nothing that they need is looked at.
    """
    seen = Examined(connection, publication, slot, tuple(tables))
    every = [
        *(finding for table in seen.tables for finding in _table(seen, table, rows_only)),
        *_missing(seen),
    ]
    if rows_only:
        unknown = seen.publication is None and not seen.wanted
        return [*_version(seen), *(_no_publication(seen, []) if unknown else ()), *_narrowed(seen), *every]
    return [
        *_version(seen),
        *_server(seen),
        *_rights(seen),
        *_slots(seen),
        *_wal(seen),
        *_timeouts(seen),
        *_publication(seen),
        *every,
    ]


def _version(seen: Examined) -> Iterator[Finding]:
    server = seen.server
    if server.version < OLDEST:
        text = f"the server is PostgreSQL {server.version}; {OLDEST} to {NEWEST} are supported"
        yield Finding("fail", text, "Upgrade the server")
    elif server.version > NEWEST:
        yield Finding("warn", f"the server is PostgreSQL {server.version}, which has not been tried")
    if server.encoding == "SQL_ASCII":
        text = "the database has the encoding SQL_ASCII: text that is not UTF-8 cannot be read"
        yield Finding("warn", text, "Convert the database to UTF8")


def _server(seen: Examined) -> Iterator[Finding]:
    server = seen.server
    if server.is_standby:
        # Also where it has logical slots, from version 16 on.
        text = "the server is a standby, and gives no transaction ids, by which rows and changes are parted"
        yield Finding("fail", text, "Connect to the primary: options: {target_session_attrs: read-write}")
    if server.wal_level != "logical":
        remedy = "ALTER SYSTEM SET wal_level = logical; -- and restart; RDS: rds.logical_replication = 1"
        yield Finding("fail", f"wal_level is {server.wal_level}: changes of rows are not in the log", remedy)


def _rights(seen: Examined) -> Iterator[Finding]:
    if not seen.server.may_replicate:
        text = f"the role {seen.server.role} has no right to replicate"
        remedy = f"ALTER ROLE {seen.role} REPLICATION; -- RDS: GRANT rds_replication TO {seen.role};"
        yield Finding("fail", text, remedy)


def _slots(seen: Examined) -> Iterator[Finding]:
    slot, name, server = seen.slot, seen.slot_name, seen.server
    if slot is None:
        if server.slots_used >= server.slots:
            idle = f"; nobody reads {listed(seen.idle_slots)}" if seen.idle_slots else ""
            text = f"no replication slot is free, {server.slots_used} of {server.slots} in use{idle}"
            remedy = f"ALTER SYSTEM SET max_replication_slots = {server.slots + 5}; -- and restart the server"
            yield Finding("fail", text, remedy)
        if seen.oldest_transaction:
            pid, seconds = seen.oldest_transaction
            text = f"a transaction has been open for {readable_seconds(seconds)} (PID {pid})"
            yield Finding("warn", f"{text}: the slot {name} is there only when it has ended")
    elif slot.slot_type != "logical" or slot.plugin != "pgoutput" or slot.database != server.database:
        text = f"the slot {name} is another one: {slot.slot_type}, {slot.plugin}, database {slot.database}"
        yield Finding("fail", text, "Set `slot` to a name that is free")
    elif slot.wal_status == "lost":
        text = f"the server has removed WAL that the slot {name} still needed: it fell behind by more than "
        text += f"max_slot_wal_keep_size ({_size(server.keep_mb)})"
        # Whether a run stops here, or reads the tables anew, `on_slot_loss` says.
        yield Finding("warn", text, f"SELECT pg_drop_replication_slot('{name}'); -- and read the tables anew")
    elif slot.wal_status == "unreserved":
        text = f"the slot {name} is behind by more than max_slot_wal_keep_size ({_size(server.keep_mb)})"
        yield Finding("warn", f"{text}, and is lost at the next checkpoint", "Let the pipeline run now")
    if server.senders_used >= server.senders:
        used = f"{server.senders_used} of {server.senders} in use"
        text = f"no WAL sender is free, {used}: large transactions cannot be streamed"
        remedy = f"ALTER SYSTEM SET max_wal_senders = {server.senders + 5}; -- and restart the server"
        yield Finding("warn", text, remedy)


def _wal(seen: Examined) -> Iterator[Finding]:
    keep = seen.server.keep_mb
    remedy = "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();"
    if keep < 0:
        text = "max_slot_wal_keep_size is not set: WAL that is not read yet is kept until the disk is full"
        yield Finding("warn", text, remedy)
    elif keep * 1024**2 < _ENOUGH_WAL:
        text = f"max_slot_wal_keep_size is {_size(keep)}: a pipeline that is behind by more loses its slot"
        yield Finding("warn", text, remedy)


def _timeouts(seen: Examined) -> Iterator[Finding]:
    for name in ("idle_session_timeout", "transaction_timeout"):
        value = getattr(seen.server, name)
        if value not in ("0", "0ms"):
            remedy = f"ALTER ROLE {seen.role} SET {name} = 0;"
            yield Finding("warn", f"{name} is {value}: the server ends sessions of the pipeline", remedy)
    threshold = seen.server.old_snapshot_threshold
    if threshold not in ("-1", "-1min"):
        text = f"old_snapshot_threshold is {threshold}: a snapshot of a large table that takes longer fails"
        remedy = "ALTER SYSTEM SET old_snapshot_threshold = -1; -- and restart the server"
        yield Finding("warn", text, remedy)


def _publication(seen: Examined) -> Iterator[Finding]:
    name, publication = quoted(seen.publication_name), seen.publication
    lacking = [one for one in seen.tables if one.stream not in seen.published and one.kind in ("r", "p")]
    if publication is None:
        yield from _no_publication(seen, lacking)
        return
    silent = [word for word, is_said in zip(OPERATIONS, publication.publishes, strict=True) if not is_said]
    if silent:
        text = f"the publication {seen.publication_name} does not publish {listed(silent)}: they never arrive"
        yield Finding("warn", text, f"ALTER PUBLICATION {name} SET (publish = '{', '.join(OPERATIONS)}');")
    if lacking and not (publication.is_owner and all(one.is_owner for one in lacking)):
        tables = ", ".join(one.name for one in lacking)
        text = (
            f"the publication {seen.publication_name} does not cover {listed(one.stream for one in lacking)}"
        )
        yield Finding("fail", text, f"ALTER PUBLICATION {name} ADD TABLE {tables};")
    if not publication.is_by_root and any(one.kind == "p" for one in seen.tables):
        text = f"the publication {seen.publication_name} publishes partitions under their own names"
        yield Finding("fail", text, f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true);")
    yield from _narrowed(seen)


def _narrowed(seen: Examined) -> Iterator[Finding]:
    for one in seen.narrowed:
        if any(one.stream == table.stream for table in seen.tables):
            columns = [f"the columns {listed(one.columns)}"] if one.columns else []
            rows = [f"rows with {one.rows}"] if one.rows else []
            text = f"the publication {seen.publication_name} publishes of {one.stream} only "
            yield Finding("ok", text + " and only ".join([*columns, *rows]), stream=one.stream)


def _no_publication(seen: Examined, lacking: Sequence[Any]) -> Iterator[Finding]:
    if not seen.wanted:
        text = f"the publication {seen.publication_name} does not exist, and `tables` names none"
        yield Finding("fail", text, "Name the tables, or correct `publication`")
        return
    foreign = [one for one in lacking if not one.is_owner]
    if seen.server.may_create and not foreign:
        return
    by_root = " WITH (publish_via_partition_root = true)" if any(one.kind == "p" for one in lacking) else ""
    tables = ", ".join(one.name for one in lacking)
    why = f"does not own {listed(one.stream for one in foreign)}" if foreign else "may create nothing here"
    text = f"the publication {seen.publication_name} is missing, and the role {seen.server.role} {why}"
    statement = f"CREATE PUBLICATION {quoted(seen.publication_name)} FOR TABLE {tables}{by_root};"
    yield Finding("fail", text, f"{statement} -- as the owner of the tables")


def _table(seen: Examined, table: Any, rows_only: bool) -> Iterator[Finding]:
    def found(state: Any, text: str, remedy: str = "") -> Finding:
        return Finding(state, f"{table.stream} {text}", remedy, table.stream)

    if table.kind in _KINDS:
        yield found(
            "fail", f"is {_KINDS[table.kind]}: it has no changes of its own", "Name the tables behind it"
        )
        return
    if table.persistence != "p":
        yield found("fail", "is not in the log: it is unlogged", f"ALTER TABLE {table.name} SET LOGGED;")
    if not table.may_use:
        remedy = f"GRANT USAGE ON SCHEMA {quoted(table.schema)} TO {seen.role};"
        yield found("fail", f"is in a schema that the role {seen.server.role} may not use", remedy)
    elif not table.may_read:
        remedy = f"GRANT SELECT ON TABLE {table.name} TO {seen.role};"
        yield found("fail", f"may not be read by the role {seen.server.role}", remedy)
    if table.is_filtered:
        remedy = f"ALTER ROLE {seen.role} BYPASSRLS;"
        yield found("fail", f"hides rows from the role {seen.server.role} by row-level security", remedy)
    if not rows_only:
        yield from _identity(seen, table, found)


def _identity(seen: Examined, table: Any, found: Any) -> Iterator[Finding]:
    """Changes need something that names their row; the server refuses those of a published table without."""
    if table.identity in ("f", "i") or (table.identity == "d" and table.has_key):
        return
    publication = seen.publication
    if publication and not any(publication.publishes[1:3]):
        return
    what = "has only a DEFERRABLE primary key" if table.has_any_key else "has no primary key"
    what = "has REPLICA IDENTITY NOTHING" if table.identity == "n" else what
    text = f"{what}: once it is published, the server refuses every UPDATE and DELETE of it"
    whole = f"ALTER TABLE {table.name} REPLICA IDENTITY {'DEFAULT' if table.has_key else 'FULL'};"
    remedy = whole if table.has_key else f"{whole} -- or give it a primary key, which upsert tables need"
    yield found("warn" if table.stream in seen.published else "fail", text, remedy)


def _missing(seen: Examined) -> Iterator[Finding]:
    there = {one.stream for one in seen.tables}
    known = [one.stream for one in seen.everything if one.kind in ("r", "p")]
    for name in seen.wanted:
        if name not in there and not any(sign in name for sign in "*?["):
            text = f"there is no table {name} in {seen.server.database}{did_you_mean(name, known)}"
            yield Finding("fail", text, "Correct `tables`", name)
    if seen.wanted and not seen.tables and all(any(sign in name for sign in "*?[") for name in seen.wanted):
        text = f"no table of {seen.server.database} is one of {listed(seen.wanted)}"
        yield Finding("fail", text, "Correct `tables`")


def _size(megabytes: int) -> str:
    return readable_size(megabytes * 1024**2)
