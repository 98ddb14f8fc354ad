"""Change events of a database or a table: what they do, their key, and what they say nothing about.

Debezium sends the columns of the primary key as the key of an event. A large value that a change has not
touched is not in Postgres's log, and a placeholder is sent instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.change_columns import ChangeColumns, no_key, other_keys
from lakefeed.columns.staged import DELETE, DELETIONS, MOVED, TRUNCATE, UPDATE, UPSERT
from lakefeed.errors import TableError
from lakefeed.events import Refused
from lakefeed.rows import Rows, StepResult
from lakefeed.rows.unchanged import LISTS, lists_of, mentions, unknown_value

UNAVAILABLE = "__debezium_unavailable_value"
_TEXTS = (UNAVAILABLE, f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}')
"""Instead of a text, and of a map that Debezium writes as JSON."""
_NUMBERS = np.frombuffer(UNAVAILABLE.encode(), np.uint8)
"""Instead of a list of integers."""


def opened(rows: Rows, columns: ChangeColumns) -> Rows:
    """The rows with what each does, and what it says nothing about."""
    # Events in JSON, as tests of a pipeline have them, say something about each column.
    needed = (columns.op, columns.unchanged if rows.events.columns is not None else None)
    for name in filter(None, needed):
        if name not in rows.batch.schema.names:
            raise TableError(
                f"a table that applies changes needs the column {name}: remove it from `drop`, and keep it "
                "in what `python` returns."
            )
    op, ops = rows.batch.column(columns.op), _ops(rows, columns)
    if columns.unchanged not in rows.batch.schema.names:
        return _without_placeholders(rows.with_ops(ops))
    silent = rows.batch.column(columns.unchanged)
    if silent.null_count == len(silent):
        return rows.with_ops(ops)
    # Only a row that had another key before can be new and say nothing about something.
    moved = pc.and_(pc.is_valid(silent), pc.equal(op, columns.insertion))
    ops = pc.if_else(pc.fill_null(moved, False), pa.scalar(MOVED, pa.int8()), ops)
    return replace(rows, ops=ops, unchanged=silent.cast(LISTS))


def _ops(rows: Rows, columns: ChangeColumns) -> pa.Array:
    op = rows.batch.column(columns.op)
    deleted, updated = (
        pc.is_in(op, value_set=pa.array(some, pa.string())) for some in (columns.deletions, columns.updates)
    )
    emptied = pc.fill_null(pc.equal(op, columns.truncation), False)
    upserts = pc.if_else(updated, UPDATE, UPSERT)
    return pc.if_else(emptied, TRUNCATE, pc.if_else(deleted, DELETE, upserts)).cast(pa.int8())


class ReadLog:
    """Notes what change events do and what they do not carry, in a table that keeps them as they are.

    With `keyed`, other conditions say what they do.
    """

    def __init__(self, columns: ChangeColumns, *, keyed: bool) -> None:
        self._columns, self._keyed = columns, keyed

    def __call__(self, rows: Rows) -> StepResult:
        """The same rows with the same columns."""
        columns, names = self._columns, rows.batch.schema.names
        if columns.unchanged in names:
            rows = replace(rows, unchanged=rows.batch.column(columns.unchanged).cast(LISTS))
        elif columns.unchanged is None and not self._keyed:
            rows = _without_placeholders(rows).of(rows.batch)
        if columns.op in names and not self._keyed:
            rows = rows.with_ops(_ops(rows, columns))
        return StepResult(rows)


class RefusePartial:
    """Refuses changes that leave out columns, before a function that may read every column."""

    def __init__(self, columns: ChangeColumns, reader: str) -> None:
        self._read, self._reader = ReadLog(columns, keyed=False), reader

    def __call__(self, rows: Rows) -> StepResult:
        """The rows that have all columns."""
        lists = self._read(rows).rows.unchanged
        if lists is None or lists.null_count == len(lists):
            return StepResult(rows)
        known = replace(rows, unchanged=lists)
        partial = np.flatnonzero(lists.is_valid().to_numpy(zero_copy_only=False)).tolist()
        refused = [
            Refused(
                int(rows.indexes[at]), "python", *unknown_value(self._reader, known, at, lists[at].as_py())
            )
            for at in partial
        ]
        return StepResult(rows.without(partial), refused)


class ListNullsOfDeletions:
    """Notes that a deletion says nothing about columns that are null in it: it may bring only its key."""

    def __init__(self, reads: Collection[str]) -> None:
        """`reads` are the columns for which that makes a difference."""
        self._reads = sorted(reads)

    def __call__(self, rows: Rows) -> StepResult:
        """The same rows."""
        if rows.ops is None:
            return StepResult(rows)
        deletes = np.isin(rows.ops, DELETIONS)
        if not deletes.any():
            return StepResult(rows)
        lists = pa.nulls(len(deletes), LISTS) if rows.unchanged is None else rows.unchanged
        masks = {name: mentions(lists, name) for name in lists.flatten().unique().to_pylist()}
        for name in self._reads:
            if name in rows.batch.schema.names:
                nulls = rows.batch.column(name).is_null().to_numpy(zero_copy_only=False)
                masks[name] = masks.get(name, False) | (nulls & deletes)
        return StepResult(replace(rows, unchanged=lists_of(masks, len(deletes))))


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
    return replace(rows, batch=batch, unchanged=lists_of(dict(silent), batch.num_rows))


def _placeholders(column: pa.Array) -> Any:
    kind = column.type
    if pa.types.is_string(kind):
        found = pc.is_in(column, value_set=pa.array(_TEXTS))
    elif pa.types.is_binary(kind):
        found = pc.equal(column, UNAVAILABLE.encode())
    elif pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        single = pc.equal(pc.list_value_length(column), 1)
        firsts = pc.list_element(pc.if_else(single, column, pa.scalar([""], kind)), 0)
        found = pc.equal(firsts, UNAVAILABLE)
    elif pa.types.is_list(kind) and pa.types.is_integer(kind.value_type):
        return _is_numbers(column)
    elif pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        found = pc.is_valid(pc.map_lookup(column, pa.scalar(UNAVAILABLE), "first"))
    elif pa.types.is_struct(kind) and kind.get_field_index(UNAVAILABLE) >= 0:
        # A map whose type is not known.
        found = pc.is_valid(pc.struct_field(column, UNAVAILABLE))
    else:
        return None
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


def _is_numbers(column: pa.Array) -> Any:
    lengths = pc.equal(pc.list_value_length(column), len(_NUMBERS))
    mask = pc.fill_null(lengths, False).to_numpy(zero_copy_only=False)
    if mask.any():
        values = column.filter(pa.array(mask)).flatten().to_numpy(zero_copy_only=False)
        mask[mask] = (values.reshape(-1, len(_NUMBERS)) == _NUMBERS).all(axis=1)
    return mask


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


def refuse_other_keys(rows: Rows, keys: Sequence[str], rename: Mapping[str, str]) -> None:
    """Changes name their row by the key of the source: by other columns, its old state would be left over."""
    own, columns = rows.events.key_columns, rows.events.columns
    if own is None or columns is None:
        return
    own = tuple(rename.get(name, name) for name in own)
    names = {rename.get(name, name) for name in columns.schema.names}
    if set(keys) == set(own) or not set(keys) <= names:
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
