"""A Postgres in memory, as much of it as the product asks: tables, WAL, a publication, a slot, snapshots.

The product's own client talks to `Connection` in place of psycopg's, and decodes the bytes of pgoutput. Each
statement of the product is known here by words that no other one has.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import psycopg
from psycopg import pq

from lakefeed.sources.postgres import connection as product
from lakefeed.sources.postgres.copy_out import CopyOut
from lakefeed.sources.postgres.positions import lsn_number, lsn_text
from lakefeed.sources.postgres.replication import slot as slots
from lakefeed.sources.postgres.snapshot.chunk_key import ChunkKey

NAME = "shopdb"
VERSION = 160004
TYPES = {"int8": 20, "int4": 23, "text": 25, "bool": 16, "numeric": 1700, "date": 1082}
_TWO_DIGITS = ((10 << 16) | 2) + 4
_TOASTED = 60
"""Characters from which on a value lies beside its row, so that an update that leaves it alone lacks it."""
# A module that is imported during a life would keep what is there in place of the client.
_HOME = Path(product.__file__).parent
_MODULES = [
    import_module(".".join(("lakefeed.sources.postgres", *one.relative_to(_HOME).with_suffix("").parts)))
    for one in sorted(_HOME.rglob("*.py"))
]
_EPOCH_2000 = 946_684_800_000_000

Row = dict[str, str | None]
"""Texts by column, as the server writes them."""


@dataclass(frozen=True)
class Column:
    """A column, by the number that it keeps."""

    number: int
    name: str
    kind: str
    made: int
    """The transaction that has made it."""
    missing: str | None = None
    """What rows from before have in it."""

    @property
    def typmod(self) -> int:
        """What the declaration has in parentheses."""
        return _TWO_DIGITS if self.kind == "numeric" else -1


@dataclass
class Table:
    """A table and its rows by their key."""

    name: str
    oid: int
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    identity: str = "d"
    storage: int = 1
    last: int = 0
    rows: dict[tuple[str, ...], Row] = field(default_factory=dict)

    @property
    def stream(self) -> str:
        """`schema.table`."""
        return f"public.{self.name}"

    def key_of(self, row: Mapping[str, str | None]) -> tuple[str, ...]:
        """What tells a row from others."""
        return tuple(str(row[name]) for name in self.keys)


@dataclass(frozen=True)
class Transaction:
    """What a commit has written: messages, each with the relation that it is about, if it is published."""

    lsn: int
    xid: int
    microseconds: int
    changes: tuple[tuple[Table, bytes], ...]


class Database:
    """The server. `point` is passed with each question."""

    def __init__(self, point: Callable[[str], None]) -> None:
        self.point = point
        self.tables: dict[str, Table] = {}
        self.lsn, self.xid, self.oid = 0x1000000, 1000, 16400
        self.wal: list[Transaction] = []
        self.states: list[tuple[int, dict[str, Table]]] = []
        """The tables behind each commit, by its LSN."""
        self.members: dict[int, int] = {}
        """The publication: by the oid of a table its entry."""
        self.publication: tuple[str, int, str | None] | None = None
        self.slots: dict[str, int] = {}
        self.snapshots: dict[str, dict[str, Table]] = {}
        self.exported = 0

    def create(self, name: str, columns: Mapping[str, str], keys: Sequence[str], identity: str) -> None:
        """Make a table."""
        self.xid += 1
        self.oid += 10
        made = tuple(Column(at, one, kind, self.xid) for at, (one, kind) in enumerate(columns.items(), 1))
        self.tables[name] = Table(name, self.oid, made, tuple(keys), identity, self.oid, len(made))
        self._keep()

    def add_column(self, name: str, column: str, kind: str, default: str | None) -> None:
        """ALTER TABLE ADD COLUMN: rows that are there have the default, and are not written anew."""
        table = self.tables[name]
        if any(one.name == column for one in table.columns):
            return
        self.xid += 1
        table.last += 1
        table.columns += (Column(table.last, column, kind, self.xid, default),)
        for row in table.rows.values():
            row[column] = default
        self._keep()

    def recreate(self, name: str) -> None:
        """DROP TABLE and CREATE TABLE: another table of the same name and columns, which nobody publishes."""
        old = self.tables.pop(name)
        self.members.pop(old.oid, None)
        self.create(name, {one.name: one.kind for one in old.columns}, old.keys, old.identity)

    def drop_column(self, name: str, column: str) -> None:
        """ALTER TABLE DROP COLUMN."""
        table = self.tables[name]
        if column in table.keys or all(one.name != column for one in table.columns):
            return
        self.xid += 1
        table.columns = tuple(one for one in table.columns if one.name != column)
        for row in table.rows.values():
            row.pop(column, None)
        self._keep()

    def commit(self, statements: Sequence[tuple[Any, ...]]) -> None:
        """Run statements in one transaction: `insert`, `update`, `delete` and `truncate`."""
        self.xid += 1
        changes: list[tuple[Table, bytes]] = []
        for kind, name, *given in statements:
            table = self.tables[name]
            before = len(changes)
            getattr(self, f"_{kind}")(table, changes, *given)
            if table.oid not in self.members:
                del changes[before:]
        self.lsn += 96 + 40 * len(changes)
        self.wal.append(Transaction(self.lsn, self.xid, _EPOCH_2000 + self.xid * 10**6, tuple(changes)))
        self.lsn += 48
        self._keep(self.wal[-1].lsn)

    def at(self, lsn: int) -> dict[str, Table]:
        """The tables behind every commit before an LSN."""
        return next((tables for commit, tables in reversed(self.states) if commit < lsn), {})

    def _keep(self, lsn: int | None = None) -> None:
        if lsn is None:
            # What a statement does to the catalog is a commit like any other.
            lsn = self.lsn + 40
            self.lsn += 80
        self.states.append((lsn, deepcopy(self.tables)))

    # Statements

    def _insert(self, table: Table, changes: list[tuple[Table, bytes]], row: Mapping[str, str]) -> None:
        whole: Row = {one.name: row.get(one.name) for one in table.columns}
        if table.key_of(whole) in table.rows or any(whole[name] is None for name in table.keys):
            return
        table.rows[table.key_of(whole)] = whole
        changes.append((_frozen(table), b"I" + _int32(table.oid) + b"N" + _tuple(table, whole)))

    def _update(
        self, table: Table, changes: list[tuple[Table, bytes]], key: Sequence[str], values: Mapping[str, str]
    ) -> None:
        old = table.rows.get(tuple(key))
        known = {one.name for one in table.columns}
        if old is None:
            return
        new = old | {name: one for name, one in values.items() if name in known}
        moves = table.key_of(new) != tuple(key)
        if moves and table.key_of(new) in table.rows:
            return
        del table.rows[tuple(key)]
        table.rows[table.key_of(new)] = new
        unchanged = {name for name, one in new.items() if one == old[name] and len(one or "") > _TOASTED}
        message = b"U" + _int32(table.oid)
        if table.identity == "f":
            message += b"O" + _tuple(table, old)
        elif moves:
            message += b"K" + _tuple(table, {name: old[name] for name in table.keys})
        changes.append((_frozen(table), message + b"N" + _tuple(table, new, unchanged)))

    def _delete(self, table: Table, changes: list[tuple[Table, bytes]], key: Sequence[str]) -> None:
        old = table.rows.pop(tuple(key), None)
        if old is not None:
            kind, row = (
                (b"O", old) if table.identity == "f" else (b"K", {one: old[one] for one in table.keys})
            )
            changes.append((_frozen(table), b"D" + _int32(table.oid) + kind + _tuple(table, row)))

    def _truncate(self, table: Table, changes: list[tuple[Table, bytes]]) -> None:
        if self.snapshots:
            # It would wait: who exports a snapshot has a lock of the tables.
            return
        table.rows.clear()
        table.storage += 1
        changes.append((_frozen(table), b"T" + _int32(1) + b"\0" + _int32(table.oid)))

    # What the product asks

    def messages(self, slot: str, end: int) -> list[bytes]:
        """The bytes of pgoutput from where the slot is up to an LSN."""
        sent: dict[int, bytes] = {}
        found: list[bytes] = []
        for one in self.wal:
            if not self.slots[slot] <= one.lsn < end or not one.changes:
                continue
            when = one.microseconds - _EPOCH_2000
            found.append(struct.pack(">cqqI", b"B", one.lsn, when, one.xid))
            for table, message in one.changes:
                relation = _relation(table)
                if sent.get(table.oid) != relation:
                    sent[table.oid] = relation
                    found.append(relation)
                found.append(message)
            found.append(struct.pack(">cbqqq", b"C", 0, one.lsn, one.lsn + 48, when))
        return found

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the product's Postgres source talk to this server."""
        names: dict[str, tuple[Any, Any]] = {
            "connect": (product.connect, lambda *_, **__: Connection(self)),
            "CopyOut": (CopyOut, _Copy),
            "Acknowledger": (slots.Acknowledger, _Acknowledger),
            "_execute_for": (slots._execute_for, _make_slot),
        }
        with ExitStack() as stack:
            for module in _MODULES:
                for name, (before, after) in names.items():
                    if getattr(module, name, None) is before:
                        stack.enter_context(patch.object(module, name, after))
            yield


class _Acknowledger(slots.Acknowledger):
    """Moves the slot on at once."""

    def move(self, lsn: int, *, seen: bool = False) -> None:
        self._seen = seen
        self._advance(lsn)

    def close(self) -> None:
        """Nothing waits."""


class _Cursor:
    """The rows that a statement gives."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[Any]:
        return self._rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)


class _NamedCursor:
    """Gives rows as they are made, which have names already."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: Any, values: Any = None) -> _Cursor:
        return self._connection.execute(statement, values)

    def __enter__(self) -> _NamedCursor:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


class Connection:
    """A session, in place of psycopg's."""

    closed = broken = False
    adapters, connection = psycopg.adapters, None
    """What psycopg writes literals and names by."""
    info = SimpleNamespace(server_version=VERSION, dbname=NAME, user="lakefeed")

    def __init__(self, database: Database) -> None:
        self.database = database
        self.tables: dict[str, Table] | None = None
        """What the session sees, once it has taken somebody's snapshot."""
        self._exported: list[str] = []
        self.pgconn = SimpleNamespace(exec_=self._answered)

    def close(self) -> None:
        """Let snapshots go."""
        for name in self._exported:
            self.database.snapshots.pop(name, None)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Statements are transactions of their own here."""
        yield

    def cursor(self, **_: Any) -> _NamedCursor:
        """A cursor with names."""
        return _NamedCursor(self)

    def execute(self, statement: Any, values: Any = None) -> _Cursor:
        """Answer a statement."""
        self.database.point("query")
        text = statement if isinstance(statement, str) else None
        text = statement.decode() if isinstance(statement, bytes) else text
        text = statement.as_string(None) if text is None else text
        for words, answer in _ANSWERS:
            if words in text:
                return _Cursor(answer(self, text, values))
        if text.split()[0] in ("SET", "BEGIN", "ROLLBACK", "COMMIT"):
            return _Cursor([])
        raise AssertionError(f"the server does not know this statement: {text}")

    @property
    def now(self) -> dict[str, Table]:
        """The tables that a statement sees."""
        return self.database.tables if self.tables is None else self.tables

    def by_oid(self, oid: int) -> Table | None:
        """A table by its number."""
        return next((one for one in self.now.values() if one.oid == oid), None)

    def _answered(self, statement: bytes) -> Any:
        """Rows as they are now, and what the statement has seen."""
        self.database.point("query")
        text = statement.decode()
        width = text.split(" UNION ALL ")[0].count("NULL")
        rows: list[list[bytes | None]] = [[b"-1", _seen(self.database).encode(), *[None] * width]]
        for part in text.split(" UNION ALL ")[1:]:
            found = re.fullmatch(r'SELECT (\d+), NULL(.*) FROM ONLY "public"\."(\w+)" WHERE (.*)', part, re.S)
            assert found, part
            table = self.now[found[3]]
            key = dict(re.findall(r"\"(\w+)\" = '([^']*)'", found[4]))
            row = table.rows.get(tuple(key[name] for name in table.keys))
            if row is not None:
                names = re.findall(r'"(\w+)"|(NULL)', found[2])
                values = [row[name] if name else None for name, _ in names]
                rows.append(
                    [found[1].encode(), None, *(one if one is None else one.encode() for one in values)]
                )
        return SimpleNamespace(
            status=pq.ExecStatus.TUPLES_OK,
            ntuples=len(rows),
            nfields=width + 2,
            get_value=lambda row, column: rows[row][column],
        )


class _Copy:
    """The rows of one COPY."""

    def __init__(self, connection: Connection, statement: bytes) -> None:
        database = connection.database
        database.point("copy")
        text = statement.decode()
        if found := re.search(r"pg_logical_slot_peek_binary_changes\"\(\s*'([^']+)', '([^']+)'", text):
            data = database.messages(found[1], lsn_number(found[2]))
            rows = [struct.pack(">hi", 1, len(one)) + one for one in data]
            self._rows = [b"PGCOPY\n\xff\r\n\0" + bytes(8), *rows, b"\xff\xff"]
            return
        found = re.search(r'SELECT (.*) FROM ONLY "public"\."(\w+)"(.*)\) TO STDOUT', text, re.S)
        assert found, text
        names = re.findall(r'"(\w+)"', found[1])
        table = connection.now[found[2]]
        rows_there = [row for row in table.rows.values() if _is_within(table, row, found[3])]
        limit = re.search(r"LIMIT (\d+)", found[3])
        rows_there = rows_there[: int(limit[1])] if limit else rows_there
        self._rows = [_csv([row[name] for name in names]) for row in rows_there]

    def take(self, most_bytes: int, most_rows: int) -> list[bytes]:
        """The next rows."""
        most = min(most_rows, 3)
        found, self._rows = self._rows[:most], self._rows[most:]
        return found


def _is_within(table: Table, row: Row, where: str) -> bool:
    """Whether a row is of a chunk."""
    assert "ctid" not in where, where
    number = number_of(table, row)
    bounds = re.findall(r"(?:\"|bigint) (>=|<) (-?\d+)", where)
    return all(number >= int(at) if sign == ">=" else number < int(at) for sign, at in bounds)


def number_of(table: Table, row: Row) -> int:
    """What chunks of a snapshot are ranges of."""
    if _key_type(table) in ("int4", "int8"):
        return int(str(row[table.keys[0]]))
    import pyarrow as pa

    key = ChunkKey(table.keys, is_hashed=True)
    return int(key.numbers([pa.array([row[name]], pa.string()) for name in table.keys])[0])


def _make_slot(connection: Connection, statement: bytes, seconds: float) -> None:
    database = connection.database
    found = re.search(r"pg_create_logical_replication_slot\('([^']+)'", statement.decode())
    assert found
    database.point("query")
    database.slots.setdefault(found[1], database.lsn)


def _frozen(table: Table) -> Table:
    """The table as a change has it; its rows are of no interest there."""
    return Table(table.name, table.oid, table.columns, table.keys, table.identity)


def _int32(number: int) -> bytes:
    return struct.pack(">I", number)


def _tuple(table: Table, row: Mapping[str, str | None], unchanged: set[str] = frozenset()) -> bytes:  # type: ignore[assignment]
    parts = [struct.pack(">h", len(table.columns))]
    for column in table.columns:
        text = row.get(column.name)
        if column.name in unchanged:
            parts.append(b"u")
        elif text is None:
            parts.append(b"n")
        else:
            parts.append(b"t" + struct.pack(">i", len(text.encode())) + text.encode())
    return b"".join(parts)


def _relation(table: Table) -> bytes:
    found = b"R" + _int32(table.oid) + b"public\0" + table.name.encode() + b"\0" + table.identity.encode()
    found += struct.pack(">h", len(table.columns))
    for one in table.columns:
        in_key = one.name in table.keys or table.identity == "f"
        found += struct.pack(">b", in_key) + one.name.encode() + b"\0"
        found += struct.pack(">Ii", TYPES[one.kind], one.typmod)
    return found


def _csv(values: Sequence[str | None]) -> bytes:
    fields = ["" if one is None else '"' + one.replace('"', '""') + '"' for one in values]
    return (",".join(fields) + "\n").encode()


def _key_type(table: Table) -> str:
    return next(one.kind for one in table.columns if one.name == table.keys[0])


def _seen(database: Database) -> str:
    return f"{database.xid + 1}:{database.xid + 1}:"


# What each statement gives.


def _tables(connection: Connection, text: str, values: Any) -> list[Any]:
    database = connection.database
    return [
        {
            "schema": "public",
            "name": one.name,
            "oid": one.oid,
            "kind": "r",
            "identity": one.identity,
            "rows": len(one.rows),
            "blocks": 1,
            "storage": one.storage,
            "unmeasured": [],
            "nameless": [],
            "has_parts": True,
            "children": [],
            "keys": list(one.keys),
            "key_type": _key_type(one),
            "membership": database.members.get(one.oid, 0) if values["publication"] else 0,
            "is_by_all": False,
            "ancestors": [],
            "types": zlib.crc32(repr([(c.number, c.kind, c.made) for c in one.columns]).encode()) & 0x7FFFFFF,
            "numbered_columns": [f"{c.number}:{c.name}" for c in one.columns],
            "names": "0:0",
            "persistence": "p",
            "has_key": True,
            "has_any_key": True,
            "key_types": [f"{c.number}:{TYPES[c.kind]}:-1" for c in one.columns if c.name in one.keys],
            "has_odd_key": False,
            "may_use": True,
            "may_read": True,
            "unreadable": [],
            "is_filtered": False,
            "is_owner": True,
            "sql_name": f"public.{one.name}",
        }
        for one in connection.now.values()
    ]


def _published(connection: Connection, text: str, values: Any) -> list[Any]:
    known = connection.database.publication
    if known is None or known[0] != values["publication"]:
        return []
    members = connection.database.members
    there = [one for one in connection.now.values() if one.oid in members]
    return [(one.stream, [c.name for c in one.columns], None) for one in there]


def _publication(connection: Connection, text: str, values: Any) -> list[Any]:
    known = connection.database.publication
    if known is None or known[0] != values[0]:
        return [("lakefeed", True, None, None, None, None, None)]
    return [("lakefeed", True, known[1], True, True, [True] * 4, known[2])]


def _publish(connection: Connection, text: str, values: Any) -> list[Any]:
    database = connection.database
    if database.publication is None:
        found = re.search(r'PUBLICATION "([^"]+)"', text)
        assert found
        database.oid += 10
        database.publication = found[1], database.oid, None
    for name in re.findall(r"public\.(\w+)", text):
        database.oid += 10
        database.members[database.tables[name].oid] = database.oid
    return []


def _comment(connection: Connection, text: str, values: Any) -> list[Any]:
    database = connection.database
    assert database.publication is not None
    database.publication = (*database.publication[:2], text.rsplit("'", 2)[1])
    return []


def _slot(connection: Connection, text: str, values: Any) -> list[Any]:
    at = connection.database.slots.get(values[0])
    return [] if at is None else [(lsn_text(at), lsn_text(at), "reserved", "pgoutput", NAME, None, None)]


def _advance(connection: Connection, text: str, values: Any) -> list[Any]:
    connection.database.slots[values[0]] = lsn_number(values[1])
    return []


def _server(connection: Connection, text: str, values: Any) -> list[Any]:
    return [
        SimpleNamespace(
            version=16,
            is_standby=False,
            role="lakefeed",
            database=NAME,
            encoding="UTF8",
            wal_level="logical",
            keep_mb=-1,
            slots=10,
            senders=10,
            slots_used=1,
            senders_used=0,
            may_replicate=True,
            may_create=True,
            idle_session_timeout="0",
            transaction_timeout="0",
            old_snapshot_threshold="-1",
        )
    ]


def _slot_kind(connection: Connection, text: str, values: Any) -> list[Any]:
    there = values[0] in connection.database.slots
    return [
        SimpleNamespace(plugin="pgoutput", database=NAME, slot_type="logical", wal_status="reserved")
    ] * there


def _nothing(connection: Connection, text: str, values: Any) -> list[Any]:
    return []


def _wal_end(connection: Connection, text: str, values: Any) -> list[Any]:
    return [(lsn_text(connection.database.lsn),)]


def _emit(connection: Connection, text: str, values: Any) -> list[Any]:
    connection.database.lsn += 64
    connection.database.xid += 1
    return [("0/0",)]


def _own_id(connection: Connection, text: str, values: Any) -> list[Any]:
    connection.database.xid += 1
    return [(str(connection.database.xid),)]


def _export(connection: Connection, text: str, values: Any) -> list[Any]:
    database = connection.database
    database.exported += 1
    name = f"snapshot-{database.exported}"
    database.snapshots[name] = deepcopy(database.tables)
    connection._exported.append(name)
    return [(name, _seen(database), _EPOCH_2000)]


def _import(connection: Connection, text: str, values: Any) -> list[Any]:
    name = text.split("'")[1]
    if name not in connection.database.snapshots:
        raise psycopg.errors.UndefinedObject(f'snapshot "{name}" does not exist')
    connection.tables = connection.database.snapshots[name]
    return []


def _oid(connection: Connection, text: str, values: Any) -> list[Any]:
    return [(connection.now[values[0].split('"')[-2]].oid,)]


def _fields(connection: Connection, text: str, values: Any) -> list[Any]:
    table = connection.by_oid(values[0])
    return [(one.name, TYPES[one.kind], one.typmod, "") for one in (table.columns if table else ())]


def _types(connection: Connection, text: str, values: Any) -> list[Any]:
    names = {oid: name for name, oid in TYPES.items()}
    return [(oid, names[oid], "b", None, 0, 0, -1, 0, 0) for oid in values[0]]


def _stored(connection: Connection, text: str, values: Any) -> list[Any]:
    table = connection.by_oid(values[0])
    columns = table.columns if table else ()
    return [(one.name, TYPES[one.kind], one.typmod, 0, one.missing) for one in columns]


def _keys(connection: Connection, text: str, values: Any) -> list[Any]:
    table = connection.by_oid(values[0])
    return [(list(table.keys),)] if table else []


def _bounds(connection: Connection, text: str, values: Any) -> list[Any]:
    table = connection.now[text.split('"')[-2]]
    numbers = [number_of(table, row) for row in table.rows.values()]
    return [(min(numbers, default=None), max(numbers, default=None))]


def _edge(connection: Connection, text: str, values: Any) -> list[Any]:
    found = re.search(r'FROM ONLY "public"\."(\w+)" (?:WHERE "\w+" >= (-?\d+))?.*OFFSET (\d+)', text, re.S)
    assert found, text
    table = connection.now[found[1]]
    numbers = sorted(number_of(table, row) for row in table.rows.values())
    numbers = [one for one in numbers if found[2] is None or one >= int(found[2])]
    return [(one,) for one in numbers[int(found[3]) :][:1]]


def _current(connection: Connection, text: str, values: Any) -> list[Any]:
    table = connection.by_oid(values[0])
    columns = table.columns if table else ()
    return [("public", table.name, False, one.name, TYPES[one.kind]) for one in columns if table]


_ANSWERS: Sequence[tuple[str, Callable[[Connection, str, Any], list[Any]]]] = (
    ("WITH RECURSIVE below", _tables),
    ("WITH RECURSIVE publication", _published),
    ("'CREATE'), p.oid, p.pubviaroot", _publication),
    ("CREATE PUBLICATION", _publish),
    ("ALTER PUBLICATION", _publish),
    ("COMMENT ON PUBLICATION", _comment),
    ("SELECT confirmed_flush_lsn::text", _slot),
    ("SELECT slot_name, database FROM", lambda at, _, __: [(one, NAME) for one in at.database.slots]),
    ("pg_replication_slot_advance", _advance),
    ("current_setting('server_version_num')", _server),
    ("SELECT plugin, database, slot_type", _slot_kind),
    ("WHERE NOT active ORDER BY 1", _nothing),
    ("WHERE backend_xid IS NOT NULL", _nothing),
    ("FROM pg_publication_rel r JOIN pg_class", _nothing),
    ("c.relname, array_agg(a.attname::text", _nothing),
    ("FROM pg_catalog.pg_control_system()", lambda *_: [("7000000000000000001/16384",)]),
    ("pg_walfile_name", lambda *_: [("00000001",)]),
    ("pg_logical_emit_message", _emit),
    ("pg_catalog.pg_export_snapshot()", _export),
    ("pg_current_wal_insert_lsn()", _wal_end),
    ("pg_current_wal_flush_lsn()", _wal_end),
    ("pg_current_xact_id()", _own_id),
    ("pg_snapshot_xmin", lambda at, _, __: [(str(at.database.xid + 1),)]),
    ("SELECT pg_catalog.pg_current_snapshot()::text", lambda at, _, __: [(_seen(at.database),)]),
    ("SET TRANSACTION SNAPSHOT", _import),
    ("LIMIT 0", _nothing),
    ("regclass::oid", _oid),
    ("attgenerated::text FROM pg_catalog.pg_attribute", _fields),
    ("FROM pg_catalog.pg_type t", _types),
    ("SELECT attname, attndims", _nothing),
    ("p.attmissingval", _stored),
    ("pg_catalog.pg_class c WHERE c.oid = %s", _keys),
    ("SELECT min(", _bounds),
    ("SELECT n.nspname, c.relname, c.relkind = 'p'", _current),
    (" OFFSET ", _edge),
)
"""What a statement is known by, and who answers it; the first that fits."""
