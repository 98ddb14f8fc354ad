"""Projections without a JVM: a few lines of SQL, read by hand into what Spark's analyzer would say."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from lakefeed.errors import SqlError
from lakefeed.handles.shaping import Rules
from lakefeed.sql.analysis import all_columns
from lakefeed.sql.expression import Call, Column, Expression, Literal
from lakefeed.sql.projection import Item, Projection, Rule

_COMPARED = re.compile(r"(?P<name>\w+) (?P<sign>[<>=]|IS NOT NULL)(?: (?P<value>-?\d+))?")
_SIGNS = {"<": "LessThan", ">": "GreaterThan", "=": "EqualTo"}


def analyze_by_hand(
    input: pa.Schema, select: Sequence[str], where: str | None, expect: Rules, table: pa.Schema | None = None
) -> Projection:
    """`*`, `name`, `name AS other`, and conditions such as `price > 0` and `name IS NOT NULL`."""
    items: list[Item] = []
    for at, text in enumerate(select or ["*"]):
        items += all_columns(input) if text == "*" else [_item(f"select[{at}]", text, input)]
    output = pa.schema([input.field(_column(item).name).with_name(item.name) for item in items])
    condition = None if where is None else _condition("where", where, input)
    rules = tuple(
        Rule(name, that, otherwise, _condition(f"expect.{name}", that, table or output))
        for name, (that, otherwise) in expect.items()
    )
    return Projection(input, output, condition, where, tuple(items), rules, None)


def _column(item: Item) -> Column:
    assert isinstance(item.expression, Column)
    return item.expression


def _item(key: str, text: str, input: pa.Schema) -> Item:
    name, _, alias = text.partition(" AS ")
    return Item(alias or name, text, _named(key, name, input))


def _named(key: str, name: str, input: pa.Schema) -> Column:
    if name not in input.names:
        raise SqlError(key, f"a column with name `{name}` cannot be resolved", lacks_column=True)
    return Column(input.field(name).type, name)


def _condition(key: str, text: str, input: pa.Schema) -> Expression:
    found = _COMPARED.fullmatch(text)
    assert found, text
    column = _named(key, found["name"], input)
    if found["sign"] == "IS NOT NULL":
        return Call(pa.bool_(), "IsNotNull", "IS NOT NULL", (column,))
    value = Literal(column.type, pa.scalar(int(found["value"]), column.type).as_py())
    return Call(pa.bool_(), _SIGNS[found["sign"]], found["sign"], (column, value))
