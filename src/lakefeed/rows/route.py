"""Rows are parted by the table that they belong to, and what that table lacks for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakefeed.events import Refused
from lakefeed.files.partitions import Codes, combined
from lakefeed.pipeline.options.route import Key, Route, can_route, safe_value


def part(rows: pa.RecordBatch, route: Route) -> tuple[list[tuple[Key, pa.RecordBatch]], list[Refused]]:
    """The rows of each table, in the order that they had, and those that belong to none.

    Rows are copied once, and not at all when all of them belong to one table.
    """
    found, codes = combined((_texts(rows, name) for name in route.columns), rows.num_rows)
    owners: dict[Key, int] = {}
    errors: dict[int, str] = {}
    owner_of = np.full(len(found), -1)
    for code, values in enumerate(found):
        key, error = key_of(values, route)
        if key is None:
            errors[code] = error
        else:
            owner_of[code] = owners.setdefault(key, len(owners))
    if len(owners) == 1 and not errors:
        return [(key, rows) for key in owners], []
    owned = owner_of[codes]
    lost = np.flatnonzero(owned < 0).tolist()
    unroutable = [Refused(at, "write", "bad_route", errors[int(codes[at])]) for at in lost]
    # Small integers are sorted by radix, which is several times faster.
    order = np.argsort(owned.astype(np.int16) if len(owners) < 2**15 else owned, kind="stable")
    edges = np.searchsorted(owned[order], np.arange(len(owners) + 1)).tolist()
    # Each part is a copy of its own: a slice would keep all rows in memory for as long as its few wait.
    parts = [(key, rows.take(pa.array(order[edges[at] : edges[at + 1]]))) for key, at in owners.items()]
    return parts, unroutable


def _texts(rows: pa.RecordBatch, name: str) -> tuple[list[str | None], Codes]:
    """The distinct values of a column as text, and which each row has; None for no text and no column."""
    known = name in rows.schema.names and can_route(rows.schema.field(name).type)
    texts = rows.column(name).cast(pa.string()) if known else pa.nulls(rows.num_rows, pa.string())
    encoded = texts.dictionary_encode()
    words = [*encoded.dictionary.to_pylist(), None]
    return words, encoded.indices.fill_null(len(words) - 1).to_numpy()


def key_of(values: Sequence[str | None], route: Route) -> tuple[Key | None, str]:
    """Which table values of the columns of a route belong to; None and why, where they belong to none."""
    for name, value in zip(route.columns, values, strict=True):
        if value is None:
            return None, f"{name}: no value that says which table the event belongs to"
        if safe_value(value) is None:
            return None, f"{name}: expected 1 to 100 characters for the path of a table, got {len(value)}"
    key = tuple(safe_value(value or "") or "" for value in values)
    if route.is_hidden(key):
        return None, f"{', '.join(route.columns)}: the path would begin with '_' or '.', got {key[0]!r}"
    return key, ""


def lacking(rows: pa.RecordBatch, columns: pa.Schema) -> pa.Schema | None:
    """The columns in which these rows have values and which are not among the given ones; None if none."""
    found = list(_lacking(zip(rows.schema, rows.columns, strict=True), columns))
    return pa.schema(found) if found else None


def _lacking(members: Iterable[tuple[pa.Field, pa.Array]], known: Iterable[pa.Field]) -> Iterator[pa.Field]:
    types = {field.name: field.type for field in known}
    for field, column in members:
        if column.null_count == len(column):
            continue
        if pa.types.is_struct(field.type):
            members_inside = zip(field.type, column.flatten(), strict=True)
            inner = list(_lacking(members_inside, types.get(field.name, ())))
            if inner:
                yield pa.field(field.name, pa.struct(inner), field.nullable)
        elif field.name not in types or not field.type.equals(types[field.name]):
            yield field
