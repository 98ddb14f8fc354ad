"""The rows of a table as they are under an exported snapshot, copied as CSV by a worker."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from psycopg import sql
from pyarrow import csv

from lakefeed.errors import SourceError
from lakefeed.events import Events, OffsetRange
from lakefeed.sources.postgres.connection import Connection, limit_lock_waits
from lakefeed.sources.postgres.copy_out import CopyOut
from lakefeed.sources.postgres.events import METADATA, Origins, PostgresEvents
from lakefeed.sources.postgres.replication.pgoutput import Field, Numbers, Relation
from lakefeed.sources.postgres.replication.publication import GENERATED_SINCE
from lakefeed.sources.postgres.snapshot.chunk import positions_of_keys
from lakefeed.sources.postgres.snapshot.chunk_key import ChunkKey
from lakefeed.sources.postgres.values.table_columns import TableColumns
from lakefeed.sources.postgres.values.type_catalog import TypeCatalog
from lakefeed.sources.postgres.values.whole_rows import with_whole_rows

_STEP_BYTES = 8 * 2**20
_FIELDS = """
SELECT attname, atttypid::bigint, atttypmod, attgenerated::text FROM pg_catalog.pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""
_TRUNCATED, _READ = 0, 1
"""The ordinals of what a snapshot brings: behind whatever was there, and before every change."""


@dataclass(frozen=True)
class Rows:
    """Which rows of a table a task reads."""

    stream: str
    oid: int
    schema: str
    table: str
    keys: tuple[str, ...]
    key: ChunkKey | None
    """What tells the rows apart; None where they are only counted."""
    first: int
    """Where the chunk begins that they are of, whichever task reads them."""
    exported: str
    """The name of the snapshot; its connection is held by the driver."""
    lsn: int
    """What the rows have as their LSN: before it lies everything that they replace."""
    where: str | None = None
    """Which rows, in SQL: those of some blocks or keys, and those that the publication has."""
    columns: tuple[str, ...] | None = None
    """Those that the publication has; None for all."""
    generated: bool = False
    """Whether generated columns are read that changes would not have."""
    whole_tree: bool = False
    """Whether the rows of partitions belong to it."""
    empties: bool = False
    """Whether the rows replace those that were read before."""
    limit: int | None = None
    shows: bool = False
    """Whether the columns are told before the first row, as its Delta table may not be there yet."""
    finite: tuple[str, ...] = ()
    """In which columns infinite values become finite, as patterns of `schema.table.column`."""
    rate: int | None = None
    """How many rows the task copies in a second at most."""
    whole_rows: bool = False
    """Whether all columns are the key of a row."""
    taken: int = 0
    """When the snapshot was taken, in microseconds since 1970: the time that the rows have."""

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Rows:
        """From a task's payload."""
        columns = payload["columns"]
        key = payload["key"] and ChunkKey.of(payload["key"])
        given = {"keys": tuple(payload["keys"]), "columns": columns and tuple(columns), "key": key}
        given |= {"finite": tuple(payload["finite"])}
        return cls(**{**payload, **given})

    def before(self, lsn: int | None) -> Rows:
        """The same rows, which a change at an LSN from before the batch comes behind."""
        return self if lsn is None else replace(self, lsn=min(lsn, self.lsn))

    def behind(self, lsn: int) -> Rows:
        """The same rows, read after the table was emptied at an LSN: no commit begins one byte behind it."""
        return replace(self, lsn=max(lsn + 1, self.lsn)) if lsn else self


def read_rows(connection: Connection, span: OffsetRange, rows: Rows) -> Iterator[Events]:
    """Yield the rows, some at a time.

    A row that is read again, as its batch was lost, is the same event if nothing in it has changed, wherever
    it is stored by then: it is known by its key and a fingerprint, or by two fingerprints, in the range of
    positions that a hash of the key gives to its chunk.
    """
    at = span.start
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(rows.exported)))
    limit_lock_waits(connection)
    relation = relation_of(connection, rows.stream, rows.oid, rows.columns, generated=rows.generated)
    fields = list(relation.fields)
    names = [field.name for field in fields]
    # A publication of insertions alone may leave it out.
    key = rows.key if rows.key and {*rows.key.columns} <= {*names} else None
    tables = TableColumns(TypeCatalog(connection), finite=rows.finite)
    # While rows are copied, the connection takes no other question.
    tables.columns(relation)
    if rows.shows:
        yield no_events(tables, relation, rows.keys, whole_rows=rows.whole_rows)
    if rows.empties:
        nothing = [pa.nulls(1, pa.string())] * len(fields)
        yield _events(tables, relation, nothing, rows, np.array([at]), np.array([-1]), "truncate")
        at += 1
    for texts, lines in _copied(connection, _statement(connection, relation, rows), fields, rows.rate):
        prints = _prints(lines)
        if key is None:
            # They may be equal: only their order tells them apart.
            offsets = np.arange(at, at + len(lines))
        elif key.is_hashed:
            offsets, prints = rows.first + prints, _prints([one[::-1] for one in lines])
        else:
            offsets = positions_of_keys(key.numbers([texts[names.index(one)] for one in key.columns]))
        yield _events(tables, relation, texts, rows, offsets, -1 - (prints >> 1), "read")
        at += len(prints)
    connection.execute("ROLLBACK")


def _prints(lines: list[bytes]) -> Numbers:
    return np.fromiter(map(zlib.crc32, lines), np.int64, len(lines))


def relation_of(
    connection: Connection,
    stream: str,
    oid: int,
    columns: Collection[str] | None,
    *,
    generated: bool = False,
) -> Relation:
    """A table as the catalog describes it; `columns` are those that the publication has, None for all.

    Of generated columns those that changes have as well, or all with `generated`.
    """
    is_sent = ("", "s") if connection.info.server_version >= GENERATED_SINCE else ("",)
    fields = [
        Field(*one)
        for *one, kind in connection.execute(_FIELDS, [oid])
        if (generated or kind in is_sent) and (columns is None or one[0] in columns)
    ]
    return Relation(oid, stream, tuple(fields))


def no_events(
    tables: TableColumns, relation: Relation, keys: tuple[str, ...], *, whole_rows: bool = False
) -> PostgresEvents:
    """No event, with the columns that events of the table have: a Delta table is made of them."""
    nothing = [pa.nulls(0, pa.string())] * len(relation.fields)
    added = [pa.nulls(0, field.type) for field in METADATA]
    none = np.zeros(0, np.int64)
    events = tables.events(relation, nothing, added, keys, Origins(relation.stream, none, none))
    return with_whole_rows(events, relation, nothing, none, none == 0) if whole_rows else events


def _events(
    tables: TableColumns,
    relation: Relation,
    texts: list[pa.Array],
    rows: Rows,
    offsets: Numbers,
    numbers: Numbers,
    op: str,
) -> PostgresEvents:
    ordinal, count = (_TRUNCATED if op == "truncate" else _READ), len(offsets)
    added = [
        pa.repeat(pa.scalar(rows.stream), count),
        pa.repeat(pa.scalar(op), count),
        pa.repeat(pa.scalar(rows.lsn, pa.int64()), count),
        pa.repeat(pa.scalar(ordinal, pa.int64()), count),
        pa.repeat(pa.scalar(rows.taken, METADATA.field("_commit_time").type), count),
        *(pa.nulls(count, field.type) for field in list(METADATA)[5:]),
    ]
    events = tables.events(relation, texts, added, rows.keys, Origins(rows.stream, offsets, numbers))
    if not rows.whole_rows:
        return events
    known = np.full(count, op != "truncate")
    return with_whole_rows(events, relation, texts, known.astype(np.int64), known)


def _statement(connection: Connection, relation: Relation, rows: Rows) -> bytes:
    listed = sql.SQL(", ").join(sql.Identifier(field.name) for field in relation.fields)
    only = sql.SQL("" if rows.whole_tree else "ONLY ")
    query = sql.SQL("SELECT {} FROM {}{}").format(listed, only, sql.Identifier(rows.schema, rows.table))
    text = query.as_string(connection) + (f" WHERE {rows.where}" if rows.where else "")
    text += f" LIMIT {rows.limit}" if rows.limit else ""
    return f"COPY ({text}) TO STDOUT (FORMAT csv)".encode()


def _copied(
    connection: Connection, statement: bytes, fields: list[Field], rate: int | None = None
) -> Iterator[tuple[list[pa.Array], list[bytes]]]:
    """The rows that a COPY gives, as texts by column, and the line of each."""
    names = [str(at) for at in range(len(fields))]
    copy, done, began = CopyOut(connection, statement), 0, time.monotonic()
    most_rows = max(1, rate // 4) if rate else sys.maxsize
    while waiting := copy.take(_STEP_BYTES, most_rows):
        texts = _parsed(b"".join(waiting), names)
        if any(len(one) != len(waiting) for one in texts):
            raise SourceError(f"{len(waiting)} rows were copied, and {len(texts[0])} were found in them")
        yield texts, waiting
        done += len(waiting)
        if rate:
            # The server waits meanwhile: it sends no more than a buffer ahead.
            time.sleep(max(0.0, began + done / rate - time.monotonic()))


def _parsed(text: bytes, names: list[str]) -> list[pa.Array]:
    table = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(column_names=names, use_threads=False, block_size=max(1 << 20, len(text) + 1)),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [table.column(name).combine_chunks() for name in names]
