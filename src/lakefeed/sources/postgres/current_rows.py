"""Rows as the server has them now: for values that changes leave out, as large ones that were not touched.

What has changed since comes with a change of its own, and so does the end of a row that is gone.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import pq, sql

from lakefeed.errors import SourceUnavailable
from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.replication.pgoutput import Changes, Field, Mask
from lakefeed.sources.postgres.snapshot.visibility import Visibility
from lakefeed.sources.postgres.values.column_names import event_name

_AT_ONCE = 100
"""Rows that one statement asks for."""
_NAPS = (0.01, 0.04, 0.15, 0.3, 0.5, 1.0)
"""Seconds between two questions for rows whose change the server does not show yet."""
_TABLE = """
SELECT n.nspname, c.relname, c.relkind = 'p', a.attname, a.atttypid::bigint
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.oid = %s
"""
_SEEN = "SELECT -1, pg_catalog.pg_current_snapshot()::text{}"
_TEXT_TYPES = (25, 1042, 1043)
"""`text`, `char(n)` and `varchar(n)`, whose values are their own text."""

_Found = Mapping[int, list[str | None] | None]
"""Rows as text by the index of their change; None where several have its key."""


@dataclass(frozen=True)
class Asked:
    """Changes with values as the server has them now."""

    changes: Changes
    gone: Mask
    """Changes of rows that the server does not have any more."""
    unknown: Mask
    """Changes whose row cannot be asked for, such as from before a column of its key had another type."""


@dataclass(frozen=True)
class _Table:
    """A table as the catalog describes it now, whatever its name was before."""

    schema: str
    name: str
    is_partitioned: bool
    types: Mapping[str, int]
    """The oid of its type for each column."""

    def has(self, field: Field) -> bool:
        """Whether a column of a change is there and holds values of the same text."""
        now = self.types.get(field.name)
        return now == field.type_oid or (now in _TEXT_TYPES and field.type_oid in _TEXT_TYPES)


def with_current_values(
    connection: Connection,
    changes: Changes,
    chosen: Mask,
    keys: Sequence[str],
    columns: Collection[str] | None = None,
) -> Asked:
    """The changes, where chosen ones carry these columns or all, as far as the server has their rows.

    `columns` are named as in events. A column that the table has dropped is null. Raises SourceUnavailable
    where the server does not show a change yet that is in its log: its row might be an older one.
    """
    fields = changes.relation.fields
    left_out = {
        at: changes.unchanged[at] & chosen
        for at, field in enumerate(fields)
        if columns is None or event_name(field.name) in columns
    }
    left_out = {at: mask for at, mask in left_out.items() if mask.any()}
    none = np.zeros(len(chosen), np.bool_)
    wanted = np.logical_or.reduce([none, *left_out.values()])
    if not wanted.any():
        return Asked(changes, none, none)
    table = _table_of(connection, changes.relation.oid)
    if table is None:
        return Asked(changes, wanted, none)
    own = [field for field in fields if field.name in keys]
    if len(own) < len(keys) or not keys:
        own = [field for field in fields if field.name in changes.relation.keys]
    if not own or not all(map(table.has, own)):
        return Asked(changes, none, wanted)
    known = {at: mask for at, mask in left_out.items() if _is_known(table, fields, at)}
    unknown = np.logical_or.reduce([none, *(left_out[at] for at in left_out.keys() - known.keys())])
    question = _Question(connection, changes, table, [one.name for one in own], list(known))
    found = question.answers(np.flatnonzero(wanted & ~unknown).tolist())
    unclear = [at for at, row in found.items() if row is None]
    unknown[unclear] = True
    gone = wanted & ~unknown
    gone[list(found)] = False
    return Asked(_filled(changes, known, wanted & ~unknown & ~gone, found), gone, unknown)


def _filled(changes: Changes, columns: Mapping[int, Mask], there: Mask, found: _Found) -> Changes:
    texts, unchanged = list(changes.texts), list(changes.unchanged)
    for index, (column, left_out) in enumerate(columns.items()):
        mask = left_out & there
        if mask.any():
            rows = (found[at] for at in np.flatnonzero(mask).tolist())
            values = pa.array([row and row[index] for row in rows], pa.string())
            texts[column] = pc.replace_with_mask(texts[column], mask, values)
            unchanged[column] = unchanged[column] & ~mask
    return replace(changes, texts=texts, unchanged=unchanged)


def _table_of(connection: Connection, oid: int) -> _Table | None:
    rows = connection.execute(_TABLE, [oid]).fetchall()
    if not rows:
        return None
    schema, name, is_partitioned, *_ = rows[0]
    return _Table(schema, name, is_partitioned, {row[3]: row[4] for row in rows})


def _is_known(table: _Table, fields: Sequence[Field], at: int) -> bool:
    """Whether a column can be asked for, or was dropped; one that has come since may be its new name."""
    if fields[at].name in table.types:
        return table.has(fields[at])
    return table.types.keys() <= {field.name for field in fields}


@dataclass(frozen=True)
class _Question:
    """Asks for columns of the rows of some changes."""

    connection: Connection
    changes: Changes
    table: _Table
    keys: Sequence[str]
    columns: Sequence[int]

    def answers(self, indexes: Sequence[int]) -> _Found:
        """The rows under snapshots that see the changes; a row that is missing then is gone."""
        found: dict[int, list[str | None] | None] = {}
        for first in range(0, len(indexes), _AT_ONCE):
            left = list(indexes[first : first + _AT_ONCE])
            for nap in (*_NAPS, None):
                seen, rows = self._ask(left)
                is_seen = seen.sees(self.changes.xids[left])
                found |= {at: rows[at] for at, one in zip(left, is_seen, strict=True) if one and at in rows}
                left = [at for at, one in zip(left, is_seen, strict=True) if not one]
                if not left:
                    break
                if nap is None:
                    raise self._not_visible(left[0])
                time.sleep(nap)
        return found

    def _ask(self, indexes: Sequence[int]) -> tuple[Visibility, _Found]:
        """What the server has seen, and the rows of some changes; None for a key that it refuses."""
        try:
            return self._read(self._statement(indexes))
        except psycopg.errors.DataError:
            # Such as a label that its type does not have any more.
            if len(indexes) == 1:
                seen, _ = self._read(self._statement([]))
                return seen, {indexes[0]: None}
        except psycopg.ProgrammingError as error:
            # A statement has changed the table after it was looked at.
            raise SourceUnavailable(f"{self.changes.relation.stream} cannot be read: {error}") from error
        answers = [self._ask([at]) for at in indexes]
        return answers[0][0], {at: row for _, rows in answers for at, row in rows.items()}

    def _statement(self, indexes: Sequence[int]) -> bytes:
        """One question, so that one snapshot answers it: what that has seen, and each row."""
        fields = self.changes.relation.fields
        texts = {field.name: self.changes.texts[at] for at, field in enumerate(fields)}
        names = [fields[at].name for at in self.columns]
        values = sql.SQL("").join(
            sql.SQL(", ") + (sql.Identifier(name) if name in self.table.types else sql.NULL) for name in names
        )
        only = sql.SQL("" if self.table.is_partitioned else "ONLY ")
        parts: list[sql.Composable] = [sql.SQL(_SEEN.format(", NULL" * len(names)))]
        for at in indexes:
            conditions = [
                sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(texts[name][at].as_py()))
                for name in self.keys
            ]
            parts.append(
                sql.SQL("SELECT {}, NULL{} FROM {}{} WHERE {}").format(
                    sql.SQL(str(at)),
                    values,
                    only,
                    sql.Identifier(self.table.schema, self.table.name),
                    sql.SQL(" AND ").join(conditions),
                )
            )
        return sql.SQL(" UNION ALL ").join(parts).as_string(self.connection).encode()

    def _read(self, statement: bytes) -> tuple[Visibility, _Found]:
        result = self.connection.pgconn.exec_(statement)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise psycopg.errors.error_from_result(result)
        found: dict[int, list[str | None] | None] = {}
        seen = Visibility(0, 0, ())
        for row in range(result.ntuples):
            number, text, *values = (result.get_value(row, column) for column in range(result.nfields))
            assert number is not None
            at = int(number)
            if at < 0:
                assert text is not None
                seen = Visibility.of(text.decode())
            else:
                # Columns that were the key once may have equal values in several rows by now.
                read = [None if value is None else value.decode() for value in values]
                found[at] = None if at in found else read
        return seen, found

    def _not_visible(self, at: int) -> SourceUnavailable:
        return SourceUnavailable(
            f"transaction {self.changes.xids[at]} has changed {self.changes.relation.stream} and is not "
            "visible yet, such as one that waits for a synchronous standby; the batch is tried again"
        )
