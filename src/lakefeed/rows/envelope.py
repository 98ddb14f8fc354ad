"""Change events of a database or a table: what they do, their key, and what they say nothing about.

Debezium sends the columns of the primary key as the key of an event. A large value that a change has not
touched is not in Postgres's log, and a placeholder is sent instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.change_columns import ChangeColumns, no_key, other_keys
from lakefeed.columns.staged import DELETE, MOVED, TRUNCATE, UPSERT
from lakefeed.errors import TableError
from lakefeed.rows import Rows

UNAVAILABLE = "__debezium_unavailable_value"


def opened(rows: Rows, columns: ChangeColumns) -> Rows:
    """The rows with what each does, and what it says nothing about."""
    # Events in JSON, as tests of a pipeline have them, say something about each column.
    needed = (columns.op, columns.unchanged if rows.events.columns is not None else None)
    for name in filter(None, needed):
        if name not in rows.batch.schema.names:
            raise TableError(f"a table that applies changes needs the column {name}; remove it from `drop`.")
    op = rows.batch.column(columns.op)
    deleted = pc.is_in(op, value_set=pa.array(columns.deletions))
    emptied = pc.fill_null(pc.equal(op, columns.truncation), False)
    ops = pc.if_else(emptied, TRUNCATE, pc.if_else(deleted, DELETE, UPSERT)).cast(pa.int8())
    if columns.unchanged not in rows.batch.schema.names:
        return _without_placeholders(rows.with_ops(ops))
    silent = rows.batch.column(columns.unchanged)
    if silent.null_count == len(silent):
        return rows.with_ops(ops)
    # Only a row that had another key before can be new and say nothing about something.
    moved = pc.and_(pc.is_valid(silent), pc.equal(op, columns.insertion))
    ops = pc.if_else(pc.fill_null(moved, False), pa.scalar(MOVED, pa.int8()), ops)
    return replace(rows, ops=ops, unchanged=silent.cast(pa.list_(pa.string())))


def _without_placeholders(rows: Rows) -> Rows:
    batch, silent = rows.batch, []
    for at, name in enumerate(batch.schema.names):
        mask = _placeholders(batch.column(at))
        if mask is not None and mask.any():
            silent.append((name, mask))
            nothing = pa.scalar(None, batch.column(at).type)
            batch = batch.set_column(at, name, pc.if_else(pa.array(mask), nothing, batch.column(at)))
    if not silent:
        return rows
    masks = np.stack([mask for _, mask in silent], axis=1)
    names = pa.array([name for name, _ in silent])
    ends = np.concatenate([[0], masks.sum(axis=1).cumsum()]).astype(np.int32)
    values = names.take(pa.array(np.nonzero(masks)[1]))
    unchanged = pa.ListArray.from_arrays(pa.array(ends), values)
    return replace(rows, batch=batch, unchanged=unchanged)


def _placeholders(column: pa.Array) -> Any:
    kind = column.type
    if pa.types.is_string(kind):
        found = pc.equal(column, UNAVAILABLE)
    elif pa.types.is_binary(kind):
        found = pc.equal(column, UNAVAILABLE.encode())
    elif pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        single = pc.equal(pc.list_value_length(column), 1)
        firsts = pc.list_element(pc.if_else(single, column, pa.scalar([""], kind)), 0)
        found = pc.equal(firsts, UNAVAILABLE)
    else:
        return None
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


def key_columns(rows: Rows, names: Callable[[bytes], tuple[str, ...]]) -> tuple[str, ...]:
    """The columns of the primary key, by the keys of the events. Raises TableError where they have none."""
    if rows.events.key_columns is not None:
        return rows.events.key_columns or _refuse_without_key(rows)
    origin = rows.origin()
    found: set[tuple[str, ...]] = set()
    streams = origin.column("stream")
    for stream in pc.unique(streams):
        here = pc.is_null(streams) if not stream.is_valid else pc.equal(streams, stream)
        keys = origin.column("key").filter(here).drop_null()
        if len(keys):
            found.add(names(keys[0].as_py()))
    if len(found) != 1 or not next(iter(found)):
        what = f"their keys differ: {sorted(found)}" if len(found) > 1 else "they have no key that is read"
        raise TableError(
            f"the key of a table that applies changes comes with the events, and {what}.\n"
            "Name its columns with `keys`, or say with `key` of the source what the keys are written in."
        )
    return next(iter(found))


def _refuse_without_key(rows: Rows) -> tuple[str, ...]:
    stream = rows.origin().column("stream")[0].as_py()
    raise TableError(no_key(stream))


def refuse_other_keys(rows: Rows, keys: Sequence[str]) -> None:
    """Changes name their row by the key of the source: by other columns, its old state would be left over."""
    own, columns = rows.events.key_columns, rows.events.columns
    if own is None or columns is None or set(keys) == set(own) or not set(keys) <= set(columns.schema.names):
        return
    if not own:
        _refuse_without_key(rows)
    stream = rows.origin().column("stream")[0].as_py()
    raise TableError(other_keys(keys, stream, own))


def json_names(key: bytes) -> tuple[str, ...]:
    """The names in a key: an object of JSON, perhaps with its schema."""
    try:
        value = orjson.loads(key)
    except orjson.JSONDecodeError:
        return ()
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        value = value["payload"]
    return tuple(value) if isinstance(value, dict) else ()
