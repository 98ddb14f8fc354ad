"""Columns of the events that options of a table name: what a table cannot do without.

A column that the events of a stream do not have is null in their rows. An option that names it would leave
rows out, or judge them, by a value that nobody has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lakefeed.columns.naming import is_nested_rename
from lakefeed.pipeline.options.evolve import RESCUED
from lakefeed.pipeline.options.shaping import has_star
from lakefeed.pipeline.table import Table
from lakefeed.rows.changes import ChangePlan
from lakefeed.sql.expression import Column
from lakefeed.sql.projection import BATCH_TIME, Projection


def read_columns(
    spec: Table, rename: Mapping[str, str], projection: Projection | None, changes: ChangePlan | None
) -> dict[str, str]:
    """By their names in the events: the columns that options name, each with the first option that does.

    What a function returns is its own, and `*` names no column. `rename` has the new names of fields.
    """
    flat = [old for old, new in spec.rename.items() if not is_nested_rename(old, new)]
    found: dict[str, str] = dict.fromkeys(flat, "rename")
    if spec.python:
        return found
    old = {new: name for name, new in rename.items()}
    own = {*spec.metadata_columns.schema.names, RESCUED, BATCH_TIME}
    for option, names in _named(spec, projection, changes):
        for name in sorted(names):
            if name not in own:
                found.setdefault(old.get(name, name), option)
    return found


def _named(
    spec: Table, projection: Projection | None, changes: ChangePlan | None
) -> Iterable[tuple[str, Collection[str]]]:
    """Options with the columns that they name, as the table has them before `select`."""
    made_of: dict[str, set[str]] = {}
    if projection is not None:
        made_of = {item.name: item.expression.columns() for item in projection.items}
        if projection.where is not None:
            yield "where", projection.where.columns()
        for item in projection.items if spec.select else ():
            if not _is_passed_on(spec, item.name, item.expression):
                yield "select", item.expression.columns()
        for rule in projection.rules:
            yield "expect", _before(rule.expression.columns(), made_of)
    if changes is not None:
        for option in ("delete_when", "truncate_when"):
            condition = getattr(changes, option)
            if condition is not None:
                yield option, condition.columns()
    within = (spec.within.column,) if spec.within else ()
    columns: Mapping[str, Collection[str]] = {
        "keys": spec.keys,
        "sequence_by": spec.sequence_by,
        "within": within,
        "track": spec.track or (),
        "partition_by": [field.column for field in spec.partition_fields],
    }
    for option, names in columns.items():
        yield option, _before(names, made_of)


def _before(names: Iterable[str], made_of: Mapping[str, set[str]]) -> set[str]:
    return set[str]().union(*(made_of.get(name, {name}) for name in names))


def _is_passed_on(spec: Table, name: str, expression: object) -> bool:
    """Whether an item of `select` may be one of those that a `*` stands for."""
    return has_star(spec.select or ()) and isinstance(expression, Column) and expression.name == name
