"""Checks before the first byte: what keeps a database from being read, or hurts it, and what repairs that.

They only look, as the role that the pipeline connects as.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from lakefeed.errors import SourceError
from lakefeed.figures import readable_seconds, readable_size
from lakefeed.sources import Finding, folded
from lakefeed.sources.postgres.checks.columns import column_findings
from lakefeed.sources.postgres.checks.examined import Examined
from lakefeed.sources.postgres.connection import Connection, quoted
from lakefeed.sources.postgres.relations import TableInfo
from lakefeed.sources.postgres.replication.publication import published_name
from lakefeed.sources.postgres.source import is_pattern
from lakefeed.text import did_you_mean, listed, sentence

OLDEST, NEWEST = 13, 18
"""The versions of Postgres that are supported."""
OPERATIONS = ("insert", "update", "delete", "truncate")

_log = logging.getLogger("lakefeed")
_ENOUGH_WAL = 1024**3


def tell_findings(
    source: str,
    found: Sequence[Finding],
    takes: Callable[[str], bool],
    warned: set[str],
    *,
    goes_on: bool = False,
) -> None:
    """Log what concerns the source or tables that are taken; `warned` are texts that were logged before.

    What is the same for several tables is one line. Raises SourceError for what keeps a start from reading.
    A run that `goes_on` reads what it can: a table that the file names and that cannot be read any more
    stops alone.
    """
    told: list[Finding] = []
    for one in found:
        is_warning = one.state in ("warn", "skip") or (one.state == "fail" and goes_on)
        is_told = is_warning or (one.state == "ok" and one.stream is not None)
        if is_told and one.text not in warned and (one.stream is None or takes(one.stream)):
            warned.add(one.text)
            told.append(one)
    for first, same in folded(told):
        level = logging.INFO if first.state == "ok" else logging.WARNING
        skipped = "It is skipped." if first.state == "skip" else ""
        words = (sentence(first.text), skipped, same, first.remedy)
        _log.log(level, "source %s: %s", source, " ".join(word for word in words if word))
    wrong = [one for one in found if one.state == "fail"]
    if wrong and not goes_on:
        texts = [f"{sentence(one.text)}\n{one.remedy}" if one.remedy else one.text for one in wrong[:3]]
        if len(wrong) > len(texts):
            texts.append(f"{len(wrong) - len(texts)} more: lakefeed doctor FILE shows them.")
        raise SourceError(f"source {source}: " + "\n".join(texts))


def findings(
    connection: Connection,
    publication: str,
    slot: str,
    tables: Sequence[str],
    exclude: Sequence[str] = (),
    *,
    rows_only: bool = False,
    before: bool = False,
) -> list[Finding]:
    """Everything that was found; `tables` is what the file names, none for those of the publication.

    `rows_only`: changes are not read, so nothing that they need is looked at. `before`: the source asks for
    rows as they were.
    """
    seen = Examined(connection, publication, slot, tuple(tables), tuple(exclude), rows_only=rows_only)
    published, streams = seen.published, list(seen.chosen.readable)
    every = [
        *seen.chosen.findings,
        *column_findings(connection, publication, published, streams, rows_only=rows_only),
        *_missing(seen),
        *_children(seen, rows_only),
    ]
    if rows_only:
        unknown = not seen.publication.exists and not seen.wanted
        return [*_version(seen), *(_no_publication(seen, []) if unknown else ()), *_narrowed(seen), *every]
    return [
        *_version(seen),
        *_server(seen),
        *_rights(seen),
        *_slots(seen),
        *_wal(seen),
        *_timeouts(seen),
        *_publication(seen),
        *(_without_before(seen.chosen.readable.values()) if before else ()),
        *every,
    ]


def _without_before(tables: Iterable[TableInfo]) -> list[Finding]:
    """Tables whose old rows the server does not send, though the source asks for them."""
    return [
        Finding(
            "warn",
            f"{one.stream} has not REPLICA IDENTITY FULL: `_before` of its changes is null",
            f"ALTER TABLE {quoted(one.schema, one.name)} REPLICA IDENTITY FULL;",
            one.stream,
        )
        for one in tables
        if one.identity != "f"
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
        yield unreserved(name, _size(server.keep_mb))
    if server.senders_used >= server.senders:
        used = f"{server.senders_used} of {server.senders} in use"
        text = f"no WAL sender is free, {used}: large transactions cannot be streamed"
        remedy = f"ALTER SYSTEM SET max_wal_senders = {server.senders + 5}; -- and restart the server"
        yield Finding("warn", text, remedy)


def unreserved(slot: str, keep: str) -> Finding:
    """What to say of a slot that the server is about to give up."""
    text = f"the slot {slot} is behind by more than max_slot_wal_keep_size ({keep})"
    remedy = "Let the pipeline run, end transactions that are open for long, or raise max_slot_wal_keep_size"
    return Finding("warn", f"{text}, and is lost at the next checkpoint", remedy)


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
    if not publication.exists:
        skipped = {one.stream for one in seen.chosen.findings if one.state == "skip"}
        tables = [one for one in seen.chosen.meant.values() if one.is_table and one.stream not in skipped]
        yield from _no_publication(seen, tables)
        return
    silent = [word for word, is_said in zip(OPERATIONS, publication.publishes, strict=True) if not is_said]
    if silent:
        text = f"the publication {seen.publication_name} does not publish {listed(silent)}: they never arrive"
        yield Finding("warn", text, f"ALTER PUBLICATION {name} SET (publish = '{', '.join(OPERATIONS)}');")
    if not publication.is_by_root and any(one.is_partitioned for one in seen.chosen.meant.values()):
        text = f"the publication {seen.publication_name} publishes partitions under their own names"
        yield Finding("fail", text, f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true);")
    yield from _narrowed(seen)


def _narrowed(seen: Examined) -> Iterator[Finding]:
    for one in seen.narrowed:
        if one.stream in seen.chosen.meant:
            columns = [f"the columns {listed(one.columns)}"] if one.columns else []
            rows = [f"rows with {one.rows}"] if one.rows else []
            text = f"the publication {seen.publication_name} publishes of {one.stream} only "
            yield Finding("ok", text + " and only ".join([*columns, *rows]), stream=one.stream)


def _no_publication(seen: Examined, lacking: Sequence[TableInfo]) -> Iterator[Finding]:
    if not seen.wanted:
        text = f"the publication {seen.publication_name} does not exist, and `tables` names none"
        yield Finding("fail", text, "Name the tables, or correct `publication`")
        return
    foreign = [one for one in lacking if not one.is_owner]
    if (seen.server.may_create and not foreign) or not lacking:
        return
    by_root = (
        " WITH (publish_via_partition_root = true)" if any(one.is_partitioned for one in lacking) else ""
    )
    tables = ", ".join(map(published_name, lacking))
    why = f"does not own {listed(one.stream for one in foreign)}" if foreign else "may create nothing here"
    text = f"the publication {seen.publication_name} is missing, and the role {seen.server.role} {why}"
    statement = f"CREATE PUBLICATION {quoted(seen.publication_name)} FOR TABLE {tables}{by_root};"
    yield Finding("fail", text, f"{statement} -- as the owner of the tables")


def _missing(seen: Examined) -> Iterator[Finding]:
    known = [stream for stream, one in seen.everything.items() if one.is_table]
    for name in seen.wanted:
        if name not in seen.chosen.meant and not is_pattern(name):
            text = f"there is no table {name} in {seen.server.database}{did_you_mean(name, known)}"
            yield Finding("fail", text, "Correct `tables`", name)
    if seen.wanted and not seen.chosen.meant and all(map(is_pattern, seen.wanted)):
        text = f"no table of {seen.server.database} is one of {listed(seen.wanted)}"
        yield Finding("fail", text, "Correct `tables`")


def _children(seen: Examined, rows_only: bool) -> Iterator[Finding]:
    """Tables that inherit from another one are tables of their own: their rows are not rows of that one."""
    for stream, table in seen.chosen.readable.items():
        others = [one for one in table.children if one not in seen.chosen.meant]
        if not others:
            continue
        published = [one for one in others if one in seen.published and not rows_only]
        text = f"{stream} is inherited by {listed(others)}, whose rows are not among those that are read"
        remedies = list(_reading(seen, others))
        if published:
            text += (
                f"; the publication {seen.publication_name} publishes {listed(published)}, and the server "
            )
            text += "refuses every UPDATE and DELETE of those that have no key"
            names = ", ".join(f"ONLY {seen.everything[one].sql_name}" for one in published)
            drop = f"ALTER PUBLICATION {quoted(seen.publication_name)} DROP TABLE {names};"
            remedies.append(f"To leave them alone: {drop}")
        yield Finding("warn", text, " ".join(remedies), stream)


def _reading(seen: Examined, streams: Sequence[str]) -> Iterator[str]:
    """What to do to have tables read; the start refuses those whose changes name no row."""
    keyless = [one for one in streams if seen.everything[one].nameless]
    if named := [one for one in streams if one not in keyless]:
        yield f"To read {listed(named)}, add to `tables`: {', '.join(named)}."
    if keyless:
        alter = " ".join(
            f"ALTER TABLE {seen.everything[one].sql_name} REPLICA IDENTITY FULL;" for one in keyless
        )
        yield (
            f"To read {listed(keyless)}, add to `tables`: {', '.join(keyless)}; before that, give "
            f"{'it' if len(keyless) == 1 else 'each'} a primary key, or for a log of changes: {alter}"
        )


def _size(megabytes: int) -> str:
    return readable_size(megabytes * 1024**2)
