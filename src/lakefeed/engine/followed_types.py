"""Types of a copy that follow the database: a column gets the type that its stream has for it by now.

As a rule all rows are written again with it, and a column stays as it is where a row has a value that the new
type does not hold. The rows of a new snapshot of the only stream of an upsert table replace all rows: their
commit gives columns the types of the stream, and old values do not matter.
"""

from __future__ import annotations

import pyarrow as pa

from lakefeed.columns.column_types import meant, meant_text, type_text
from lakefeed.columns.widening import holds_all, widen
from lakefeed.events import OffsetRange, Offsets
from lakefeed.handles import retype
from lakefeed.handles.handle import TableHandle
from lakefeed.sources import Source
from lakefeed.tables.operations.operation import CommitInfo
from lakefeed.tables.positions import feeders_of
from lakefeed.text import counted


def split(handle: TableHandle, proposal: pa.Schema) -> tuple[list[pa.Field], pa.Schema]:
    """The columns of a proposal that are to get another type, and those that are to be added."""
    columns = handle.columns() or pa.schema([])
    follows = handle.follows(columns)
    other = [
        one
        for one in proposal
        if one.name in follows and not holds_all(columns.field(one.name).type, one.type)
    ]
    names = {one.name for one in other}
    return other, pa.schema([one for one in proposal if one.name not in names])


def replaces_all(handle: TableHandle, source: Source, rows_from: Offsets) -> bool:
    """Whether the rows that a table gets next from a source replace all of its rows, with a new snapshot.

    Not in a history, whose old rows stay, nor where others have written rows or delta-rs must commit.
    """
    spec = handle.spec
    if spec is None or spec.mode != "upsert" or len(spec.from_) > 1 or not handle.exists:
        return False
    if not any(source.replaces_rows(OffsetRange(name, at, at)) for name, at in rows_from.items()):
        return False
    streams = {source.stream_of(partition) for partition in rows_from}
    feeders = feeders_of(dict(handle.table.transactions))
    return len(streams) == 1 and len(feeders) == 1 and handle.table.writes_entries


def follow_with_rows(handle: TableHandle, columns: list[pa.Field], current: pa.Schema) -> list[str]:
    """Give columns the types of their stream in the commit that replaces all rows; what will be, in words."""
    with handle.lock:
        schema, declared, texts = handle.table.schema, [*handle.new_types], []
        for one in columns:
            new = current.field(one.name) if one.name in current.names else one
            old = schema.field(one.name)
            (field,) = retype.stored_columns(handle.table, [pa.field(one.name, new.type, old.nullable)])
            if holds_all(meant(field).type, new.type):
                declared = [*(known for known in declared if known.name != one.name), field]
                texts.append(
                    f"column {one.name} is {meant_text(old)}, and gets the type {type_text(new.type)} of the "
                    "database with the rows that replace all others"
                )
            else:
                handle.keeps_type.add(one.name)
                texts.append(_kept(one, meant_text(old), None))
        handle.new_types = pa.schema(declared)
    return texts


def follow(
    handle: TableHandle, columns: list[pa.Field], current: pa.Schema | None, commit_info: CommitInfo
) -> list[str]:
    """Give columns the types of their stream, all rows in one commit; what was done, in words.

    `columns` have the types that events came with, `current` those of now; None where several streams go into
    the table, whose columns are only made wide enough for the numbers of all. Events from before the
    statement have the old type still: where the table has the current one, they are converted. A column stays
    as it is where a row has a value that the new type does not hold.
    """
    with handle.lock:
        table, wanted = handle.table, {}
        for one in columns:
            have, new = meant(table.schema.field(one.name)).type, one.type
            if current is not None and one.name in current.names:
                new = current.field(one.name).type
            if current is not None and holds_all(have, new):
                handle.converts.add(one.name)
            elif pa.types.is_nested(new):
                continue
            elif current is not None or _is_number(followed_type(have, new)):
                wanted[one.name] = type_text(followed_type(have, new))
        plan = retype.plan(table, wanted)
        misfits = dict(plan.misfits)
        if misfits:
            plan = retype.plan(table, {name: text for name, text in wanted.items() if name not in misfits})
        if not plan.nothing:
            retype.run(table, plan, commit_info)
        texts = [
            f"column {one.name} was {plan.was[one.name]} and is {type_text(one.type)} now, as in the database"
            for one in plan.declared
        ]
        for one in columns:
            if one.name not in handle.converts and one.name not in plan.declared.names:
                handle.keeps_type.add(one.name)
                texts.append(_kept(one, meant_text(table.schema.field(one.name)), misfits.get(one.name)))
    return texts


def _kept(column: pa.Field, have: str, lost: retype.Misfits | None) -> str:
    why = f"; {counted(lost.count, 'value')} would be lost, such as {lost.example[:80]}" if lost else ""
    return f"column {column.name} stays {have}, and is {type_text(column.type)} in the database{why}"


def followed_type(have: pa.DataType, new: pa.DataType) -> pa.DataType:
    """The type that holds the values of both where both are exact numbers; else the new one."""
    both = widen(have, new)
    return both if _is_number(both) and not pa.types.is_floating(both) else new


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
