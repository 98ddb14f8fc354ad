"""Change events of a database: what they do, which columns are their key, and what they say nothing about.

Debezium sends the columns of the primary key as the key of an event. A large value that a change has not
touched is not in Postgres's log, and a placeholder is sent in its place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.staged import DELETE, TRUNCATE, UPSERT
from lakefeed.errors import TableError
from lakefeed.rows import Rows

UNAVAILABLE = "__debezium_unavailable_value"
_OP = "__op"


def opened(rows: Rows) -> Rows:
    """The rows with what each does, and without placeholders."""
    if _OP not in rows.batch.schema.names:
        raise TableError(f"a table that applies changes needs the column {_OP}; remove it from `drop`.")
    op = rows.batch.column(_OP)
    deleted, emptied = (pc.fill_null(pc.equal(op, word), False) for word in ("d", "t"))
    ops = pc.if_else(emptied, TRUNCATE, pc.if_else(deleted, DELETE, UPSERT)).cast(pa.int8())
    return _without_placeholders(rows.with_ops(ops))


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


def key_columns(rows: Rows) -> tuple[str, ...]:
    """The columns of the primary key, by the keys of the events. Raises TableError where they have none."""
    origin = rows.origin()
    found: set[tuple[str, ...]] = set()
    streams = origin.column("stream")
    for stream in pc.unique(streams):
        here = pc.is_null(streams) if not stream.is_valid else pc.equal(streams, stream)
        keys = origin.column("key").filter(here).drop_null()
        if len(keys):
            found.add(_names(keys[0].as_py()))
    if len(found) != 1 or not next(iter(found)):
        what = f"their keys differ: {sorted(found)}" if len(found) > 1 else "they have no key in JSON"
        raise TableError(
            f"the key of a table that applies changes comes with the events, and {what}.\n"
            "Name its columns with `keys`."
        )
    return next(iter(found))


def _names(key: bytes) -> tuple[str, ...]:
    """The names in a key: an object of JSON, perhaps with its schema."""
    try:
        value = orjson.loads(key)
    except orjson.JSONDecodeError:
        return ()
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        value = value["payload"]
    return tuple(value) if isinstance(value, dict) else ()
