"""Widening of inferred columns: which may get a wider type, and the rewrite that gives it to them.

A column that nobody declared has the type of the values that came first. Numbers and dates get a wider type
when values need one; a column of `schema`, of a key or of a partition keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefeed.columns.column_types import meant, stored_type, type_text
from lakefeed.columns.mapping import MAPPING
from lakefeed.columns.widening import widen as widen_type
from lakefeed.columns.widening import wider
from lakefeed.errors import Conflict, SqlError, TableError
from lakefeed.formats.fit.json_text import json_text
from lakefeed.handles.retype import Retyper
from lakefeed.handles.shaping import CONDITIONS
from lakefeed.pipeline.options.changes import KEYED
from lakefeed.pipeline.table import Table
from lakefeed.rows.conform import holds
from lakefeed.sql.respelling import respells
from lakefeed.tables.data_files import data_files, read_rows
from lakefeed.tables.log.data_file import Extent, extent
from lakefeed.tables.operations.operation import CommitInfo
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.rewrite import widen as rewrite
from lakefeed.tables.shape import Shape
from lakefeed.text import first_line

if TYPE_CHECKING:
    from lakefeed.handles.handle import TableHandle

_TRIES = 5
"""How often another writer may change the columns meanwhile."""


def widenable(
    spec: Table, events: pa.Schema, narrow: Mapping[str, str]
) -> tuple[frozenset[str], dict[str, str]]:
    """The columns of the events that may get a wider type, and those that may not, each with the reason.

    Declared columns are neither. `narrow` are those for which the rows of the table have shown a reason.
    """
    if spec.evolve.type_change != "widen" or spec.coerce:
        return frozenset(), {}
    declared = {*(spec.declared or pa.schema([])).names}
    free = [one.name for one in events if one.name not in declared and _may_widen(one.type)]
    if reason := _unwidened(spec):
        return frozenset(), dict.fromkeys(free, reason)
    reasons = {**narrow, **({} if spec.select else fixed_columns(spec))}
    fixed = {name: reasons[name] for name in free if name in reasons}
    return frozenset(free) - fixed.keys(), fixed


def _unwidened(spec: Table) -> str | None:
    """Why no column of a table gets a wider type."""
    if spec.route:
        return "the tables of a `route` have one type for it"
    if spec.python:
        return "`python` takes it"
    return "the events say which columns are keys" if spec.mode in KEYED and not spec.keys else None


def fixed_columns(spec: Table) -> dict[str, str]:
    """The columns of a table whose type stays, each with the reason."""
    named = {
        "keys": spec.keys,
        "sequence_by": spec.sequence_by,
        "time_by": (spec.time_by,) if spec.time_by else (),
        "within": (spec.within.column,) if spec.within else (),
        "partition_by": [one.column for one in spec.partition_fields],
    }
    return {name: f"`{option}` names it" for option, names in named.items() for name in names}


def _may_widen(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_nested(kind):
        return any(_may_widen(kind.field(at).type) for at in range(kind.num_fields))
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return bool(is_number or types.is_date(kind))


@dataclass(frozen=True)
class WidenPlan:
    """What wider columns would do to a table; nothing has been changed."""

    columns: Mapping[str, tuple[pa.DataType, pa.DataType]]
    """Columns of the table that get another type: what they have, and what they get."""
    files: Extent = field(default_factory=Extent)
    """What is written again."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """The properties that keep the columns of the events, where they change."""
    narrow: Mapping[str, str] = field(default_factory=dict)
    """Columns of the events that stay as they are, each with the reason."""
    events: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Columns of the events that get another type."""

    @property
    def text(self) -> str:
        """`column mpg: long -> double; all rows are written again: 3 files, 1.2 MB, 40 rows`."""
        types = (f"{name}: {type_text(old)} -> {type_text(new)}" for name, (old, new) in self.columns.items())
        many = "columns" if len(self.columns) > 1 else "column"
        return f"{many} {', '.join(types)}; all rows are written again: {self.files}"

    def wider(self, shape: Shape) -> Shape:
        """The shape that a table would have, which may have further columns by then."""
        schema = pa.schema(
            [
                retyped(one, self.columns[one.name][1]) if one.name in self.columns else one
                for one in shape.schema
            ]
        )
        made = shape.with_columns(schema)
        return replace(made, properties={**made.properties, **self.kept})


def plan(handle: TableHandle, needed: Iterable[pa.Field], most_rows: int | None = None) -> WidenPlan:
    """See which columns can get the types that events need, and what is to be rewritten for that.

    The rows are read where not each of their values may fit; at most so many of them, for a look only.
    """
    types, narrow = _types(handle, needed)
    while True:
        if problems := _problems(handle, types):
            narrow |= problems
            types = {name: kind for name, kind in types.items() if name not in problems}
            continue
        table_types, kept = _of_table(handle, types)
        lossy = _lossy(handle, table_types, most_rows)
        if not lossy:
            break
        # Columns that SQL makes of several have the reason of one.
        lost = [name for name in types if name in lossy] or list(types)
        narrow |= {name: lossy.get(name) or next(iter(lossy.values())) for name in lost}
        types = {name: kind for name, kind in types.items() if name not in lost}
    have = {name: meant(handle.table.schema.field(name)).type for name in table_types}
    return WidenPlan(
        {name: (have[name], kind) for name, kind in table_types.items()},
        extent(data_files(handle.table)) if table_types else Extent(),
        kept,
        narrow,
        types,
    )


def widen(
    handle: TableHandle,
    needed: Iterable[pa.Field],
    commit_info: CommitInfo,
    watch: Callable[[str], None],
    written: Callable[[], None] = lambda: None,
) -> None:
    """Give columns the types that events need, in one commit; what is done, and what is not, is watched.

    Columns that stay as they are are not asked for again by this handle.
    """
    with handle.lock:
        for left in reversed(range(_TRIES)):
            handle.table.refresh()
            handle.table.confirm()
            found = plan(handle, needed)
            for name, reason in found.narrow.items():
                watch(f"column {name} is not widened: {reason}; values that do not fit are dead letters")
            handle.narrow |= found.narrow
            if not found.events:
                return
            try:
                _run(handle, found, commit_info, watch, written)
                return
            except Conflict:
                if not left:
                    raise


def _run(
    handle: TableHandle,
    found: WidenPlan,
    commit_info: CommitInfo,
    watch: Callable[[str], None],
    written: Callable[[], None],
) -> None:
    if found.columns:
        watch(found.text)
    types = {name: type_text(new) for name, (_, new) in found.columns.items()}
    was = {name: type_text(old) for name, (old, _) in found.columns.items()}
    info = {**commit_info, "kind": "widen", "columns": types, "was": was}
    becomes = found.wider(handle.table.shape)
    schema = becomes.schema
    retypers = [Retyper(meant(schema.field(name))) for name in found.columns]

    def convert(rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = {one.name: one.take(rows.column(one.name)) for one in retypers}
        for name, (_, lost) in columns.items():
            if lost:
                raise Conflict(f"{handle.path}: {_beyond(rows.column(name), lost[0])} came into {name}")
        made = [columns[one.name][0] if one.name in columns else rows.column(one.name) for one in schema]
        return pa.RecordBatch.from_arrays(made, schema=schema)

    target = replace(handle.target(becomes), naming="uuid")
    mapping = {name: value for name, value in becomes.properties.items() if name in MAPPING}
    changed = replace(becomes, properties={**mapping, **found.kept})
    rewrite.widen(handle.table, changed, target, convert, info, written)


def _types(handle: TableHandle, needed: Iterable[pa.Field]) -> tuple[dict[str, pa.DataType], dict[str, str]]:
    """The types that columns of the events get, and columns for which there is none, with the reason.

    Columns to which another flow has given them meanwhile are neither.
    """
    events = handle.events() or pa.schema([])
    assert handle.spec is not None
    free, _ = widenable(handle.spec, events, handle.narrow)
    types, narrow = dict[str, pa.DataType](), dict[str, str]()
    for one in needed:
        if one.name not in free:
            continue
        have = events.field(one.name).type
        kind = wider(have, one)
        if not kind.equals(have):
            types[one.name] = kind
        elif type_text(widen_type(have, one.type)) != type_text(have):
            narrow[one.name] = (
                f"no type holds all of its values in one batch ({type_text(have)} in the table)"
            )
    return types, narrow


def _problems(handle: TableHandle, types: Mapping[str, pa.DataType]) -> dict[str, str]:
    """Columns that cannot get these types, each with the reason; all of them where no single one is why."""

    def problem(some: Mapping[str, pa.DataType]) -> str | None:
        try:
            table_types, _ = _of_table(handle, some)
        except (SqlError, TableError) as error:
            return first_line(error, 200)
        return _unwritable(handle) if table_types else None

    together = problem(types)
    if together is None:
        return {}
    alone = {name: why for name, kind in types.items() if (why := problem({name: kind}))}
    return alone or dict.fromkeys(types, together)


def _of_table(
    handle: TableHandle, types: Mapping[str, pa.DataType]
) -> tuple[dict[str, pa.DataType], dict[str, str]]:
    """The types that columns of the table get with those of the events, and the properties kept.

    Raises SqlError or TableError where `select` makes what a column cannot become, or SQL does not take it.
    """
    spec, shaping = handle.spec, handle.shaping
    assert spec is not None and shaping is not None
    if not types:
        return {}, {}
    events = _retyped_columns(handle.events(), types)
    if not spec.select:
        _check_sql(handle, events, types, types)
        return dict(types), {}
    fixed, table, found = fixed_columns(spec), handle.table.schema, dict[str, pa.DataType]()
    for one in shaping.made(events):
        have = table.field(one.name) if one.name in table.names else None
        if have is None or holds(have.type, one.type) or _same(have.type, one.type):
            continue
        kind = wider(meant(have).type, pa.field(one.name, meant(one).type))
        if one.name in fixed or not (holds(stored_type(kind), one.type) or _same(kind, one.type)):
            why = f", and {fixed[one.name]}" if one.name in fixed else ""
            raise TableError(
                f"`select` would make column {one.name} {type_text(one.type)} of it{why}; the table has "
                f"{type_text(have.type)}"
            )
        found[one.name] = kind
    _check_sql(handle, events, types, found)
    return found, shaping.kept(shaping.needed(events))


def _check_sql(
    handle: TableHandle,
    events: pa.Schema,
    types: Mapping[str, pa.DataType],
    table_types: Mapping[str, pa.DataType],
) -> None:
    """Raise SqlError where the SQL of the table does not take wider columns, TableError where it changes.

    Text of a number, such as a part of a key, would differ between rows from before and after.
    """
    shaping = handle.shaping
    assert shaping is not None
    projection = shaping.projection(events, _retyped_columns(handle.columns(), table_types))
    read = [(item.text, item.expression, types) for item in projection.items] if projection else []
    if projection and projection.where is not None:
        read.append((f"where: {projection.where_text}", projection.where, types))
    read += [(rule.text, rule.expression, table_types) for rule in projection.rules] if projection else []
    for option in CONDITIONS:
        if (condition := shaping.condition(option, events)) is not None:
            read.append((option, condition, types))
    for text, expression, wide in read:
        if respells(expression, wide):
            raise TableError(f"`{text[:80]}` makes text of it, which would differ for the same value")


def _retyped_columns(columns: pa.Schema | None, types: Mapping[str, pa.DataType]) -> pa.Schema:
    return pa.schema([one.with_type(types.get(one.name, one.type)) for one in columns or ()])


def _same(a: pa.DataType, b: pa.DataType) -> bool:
    """Equal but for the names of list items and map entries, and for nulls inside."""
    return type_text(stored_type(a)) == type_text(stored_type(b))


def _unwritable(handle: TableHandle) -> str | None:
    """Why the files of the table cannot be replaced by others here."""
    table = handle.table
    try:
        refuse_unkept(table, "widen")
    except TableError as error:
        return first_line(error, 200)
    return None if table.writes_entries else "only delta-rs may commit to the table as it is opened"


def _lossy(handle: TableHandle, types: Mapping[str, pa.DataType], most_rows: int | None) -> dict[str, str]:
    """Columns with values that their new type does not hold exactly, each with one of them."""
    table, found, seen = handle.table, dict[str, str](), 0
    retypers = [Retyper(pa.field(name, kind)) for name, kind in types.items() if _may_lose(kind)]
    if not retypers:
        return {}
    schema = pa.schema([table.schema.field(one.name) for one in retypers])
    for batch in read_rows(table, data_files(table), schema):
        for one in retypers:
            values = batch.column(one.name)
            if one.name not in found and (lost := one.take(values)[1]):
                found[one.name] = _beyond(values, lost[0])
        seen += batch.num_rows
        if len(found) == len(retypers) or (most_rows is not None and seen >= most_rows):
            break
    return found


def _may_lose(kind: pa.DataType) -> bool:
    """Whether a type is a double, or has one inside: it does not hold each whole number."""
    if pa.types.is_nested(kind):
        return any(_may_lose(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _beyond(values: pa.Array, at: int) -> str:
    return f"the table has {json_text(values, at)[:80]}, which a double does not hold exactly"


def retyped(have: pa.Field, kind: pa.DataType) -> pa.Field:
    """A stored column in another type, with what else its metadata and that of its fields says."""
    old, types = have.type, pa.types
    if types.is_struct(old):
        return have.with_type(pa.struct([retyped(one, kind.field(one.name).type) for one in old]))
    if types.is_list(old):
        return have.with_type(pa.list_(retyped(old.value_field, kind.value_type)))
    if types.is_map(old):
        return have.with_type(pa.map_(old.key_type, retyped(old.item_field, kind.item_type)))
    return have.with_type(stored_type(kind))
