"""Columns that events have and that a table does not get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.columns.widening import merge_proposals
from lakefeed.errors import SqlError, TableError
from lakefeed.formats.refusal import TYPE_CHANGES
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.shaping import CONDITIONS
from lakefeed.pipeline.options.route import safe_value
from lakefeed.pipeline.table import MAX_COLUMNS
from lakefeed.rows.rename import as_in_table
from lakefeed.sources import SourceClient
from lakefeed.text import counted


def refuse_new_columns(handle: TableHandle, proposal: pa.Schema) -> None:
    """Raise TableError where the rule for new columns is to stop."""
    if handle.spec and handle.spec.evolve.new_column == "fail":
        columns = ", ".join(f"{field.name} {type_text(field.type)}" for field in proposal)
        raise TableError(
            f"table {handle.name}: events have new columns and `evolve.new_column` is fail: {columns}.\n"
            "Add them to `schema`, name them in `drop`, or choose another rule, then start again."
        )


def refuse_changed_types(handle: TableHandle, errors: Mapping[str, str]) -> None:
    """Raise TableError where the rule for values of another type is to stop, given an error for each code."""
    error = next((errors[code] for code in errors if code in TYPE_CHANGES), None)
    if error and handle.spec and handle.spec.evolve.type_change == "fail":
        raise TableError(
            f"table {handle.name}: an event does not fit and `evolve.type_change` is fail: {error}.\n"
            "Correct `schema` or the producer, or choose another rule, then start again."
        )


def refuse_too_wide(handle: TableHandle, columns: pa.Schema | None, proposal: pa.Schema) -> None:
    """Raise TableError when events would make more columns than `max_columns`: then their keys are data."""
    most = handle.spec.max_columns if handle.spec else MAX_COLUMNS
    wide = sum(map(_leaves, merge_proposals(columns or pa.schema([]), proposal)))
    if wide > most:
        names = ", ".join(proposal.names[:3])
        raise TableError(
            f"table {handle.name}: events have {counted(len(proposal), 'new column')} ({names}, ...), "
            f"{wide:,} in all with nested ones; at most {most:,} are added automatically (`max_columns`).\n"
            "Declare the columns whose keys are data as `json` or as a map in `schema`, set `evolve: "
            "{new_column: rescue}`, or set `max_columns` higher."
        )


def coming_columns(handle: TableHandle, client: SourceClient, known: pa.Schema | None) -> pa.Schema | None:
    """Columns that streams have besides the `known` ones, where the SQL of their table reads one of them.

    None where they do not help, or the table takes no new columns.
    """
    spec, shaping = handle.spec, handle.shaping
    if spec is None or shaping is None or spec.evolve.new_column != "add":
        return None
    key = handle.id.key
    if known is None or spec.python:
        return None
    streams = client.column_types(lambda one: safe_value(one) in key if key else spec.takes(one))
    left_out = {*known.names, *spec.drop}
    columns = as_in_table(_of_one_type(streams), handle.rename)
    new = pa.schema([one for one in columns if one.name not in left_out])
    together = merge_proposals(known, new)
    try:
        shaping.projection(together)
        for option in CONDITIONS:
            shaping.condition(option, together)
    except SqlError:
        return None
    return new


def _of_one_type(streams: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of some streams, without those that have several types."""
    found: dict[str, list[pa.Field]] = {}
    for field in (field for columns in streams for field in columns):
        found.setdefault(field.name, []).append(field)
    return pa.schema([same[0] for same in found.values() if len({one.type for one in same}) == 1])


def _leaves(field: pa.Field) -> int:
    return sum(map(_leaves, field.type)) if pa.types.is_struct(field.type) else 1
