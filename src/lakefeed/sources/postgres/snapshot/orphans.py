"""Rows that move into a part of a table that was copied, out of one that was not: only the server knows them.

Such a change says nothing about large values that it left alone, and nothing that was read has them: the row
was not copied under its old key, and is not copied under its new one. It is asked for as it is now; what has
changed since comes with a change of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import pq, sql

from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.replication.pgoutput import DELETE, INSERT, Changes, Mask


def completed(connection: Connection, changes: Changes, kept: Mask, keys: Sequence[str]) -> Changes:
    """The changes, where what is kept of a row that has moved knows all its columns."""
    if not kept.any() or not any(mask.any() for mask in changes.unchanged):
        return changes
    silent = np.logical_or.reduce(changes.unchanged)
    # The deletion under the old key lies right before.
    has_half = np.zeros(len(kept), np.bool_)
    has_half[1:] = (
        kept[:-1] & (changes.ops[:-1] == DELETE) & (changes.ordinals[:-1] + 1 == changes.ordinals[1:])
    )
    orphans = np.flatnonzero(kept & (changes.ops == INSERT) & silent & ~has_half).tolist()
    if not orphans:
        return changes
    texts, unchanged = list(changes.texts), list(changes.unchanged)
    found = [_row(connection, changes, keys, at) for at in orphans]
    for column in range(len(texts)):
        mask = np.zeros(len(kept), np.bool_)
        mask[orphans] = unchanged[column][orphans]
        if mask.any():
            values = [row[column] for at, row in zip(orphans, found, strict=True) if mask[at]]
            texts[column] = pc.replace_with_mask(texts[column], mask, pa.array(values, pa.string()))
            unchanged[column] = unchanged[column] & ~mask
    return replace(changes, texts=texts, unchanged=unchanged)


def _row(connection: Connection, changes: Changes, keys: Sequence[str], at: int) -> list[str | None]:
    """The row as it is now, as text; all null where it is gone, which a later change says."""
    names = [field.name for field in changes.relation.fields]
    values = {name: changes.texts[names.index(name)][at].as_py() for name in keys}
    conditions = [
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value)) for name, value in values.items()
    ]
    query = sql.SQL("SELECT {} FROM {} WHERE {}").format(
        sql.SQL(", ").join(map(sql.Identifier, names)),
        sql.Identifier(*changes.relation.stream.split(".", 1)),
        sql.SQL(" AND ").join(conditions),
    )
    result = connection.pgconn.exec_(query.as_string(connection).encode())
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise psycopg.errors.error_from_result(result)
    if not result.ntuples:
        return [None] * len(names)
    found = [result.get_value(0, column) for column in range(len(names))]
    return [None if value is None else value.decode() for value in found]
