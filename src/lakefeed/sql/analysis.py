"""Texts of `select`, `where` and `expect` become expressions, by Spark's own parser and analyzer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import TIMESTAMP, stored
from lakefeed.columns.names import column_name_problem
from lakefeed.errors import SqlError
from lakefeed.sql.catalyst import Catalyst, each
from lakefeed.sql.compilation import unsupported
from lakefeed.sql.expression import Call, Column, Expression
from lakefeed.sql.projection import BATCH_TIME, Item, Otherwise, Projection, Rule
from lakefeed.sql.reading import FOREIGN, Reader
from lakefeed.sql.refusal import refused
from lakefeed.sql.spark_words import spark_words
from lakefeed.text import did_you_mean, in_backticks


def analyze(
    jvm: Any,
    input: pa.Schema,
    select: Sequence[str],
    where: str | None,
    expect: Mapping[str, tuple[str, Otherwise]],
    table: pa.Schema | None = None,
) -> Projection:
    """The projection of a table for the columns of its events.

    `jvm` is Spark's, of a session (`session._jvm`) or of a bare gateway. `input` does not name `_batch_time`,
    which every text may use and which `*` leaves out. The rules of `expect` read the columns of `table` where
    it is given, as it may have wider ones, else what `select` makes.

    Raises SqlError, which names the key below the table and says why in Spark's own words.
    """
    catalyst, input = Catalyst(jvm), stored(input)
    with catalyst.following_rules():
        analysis = _Analysis(catalyst, input)
        items = analysis.items(select) if select else all_columns(input)
        output = _output(items, input)
        condition = None if where is None else analysis.condition("where", where)
        analysis.stop_if_wrong()
        below = _Analysis(catalyst, output if table is None else table)
        read = {name: below.condition(f"expect.{name}", that) for name, (that, _) in expect.items()}
        below.stop_if_wrong()
    rules = tuple(
        Rule(name, that, otherwise, expression)
        for name, (that, otherwise) in expect.items()
        if (expression := read[name]) is not None
    )
    parts = [(item.text, item.expression) for item in items]
    parts += [("where", condition)] if condition is not None else []
    parts += [(f"expect.{rule.name}", rule.expression) for rule in rules]
    return Projection(input, output, condition, where, items, rules, _needs_spark(parts))


def check_syntax(jvm: Any, texts: Mapping[str, str]) -> None:
    """Have texts parsed, by their keys, where the columns are not known; raises SqlError."""
    analysis = _Analysis(Catalyst(jvm), pa.schema([]))
    for key, text in texts.items():
        analysis.parse(key, text)
    analysis.stop_if_wrong()


def all_columns(schema: pa.Schema) -> tuple[Item, ...]:
    """The items that `*` stands for."""
    return tuple(Item(each.name, in_backticks(each.name), Column(each.type, each.name)) for each in schema)


def _needs_spark(parts: Iterable[tuple[str, Expression]]) -> str | None:
    """The first part that Arrow does not evaluate as Spark does, with the reason."""
    return next((f"{why} ({key})" for key, one in parts if (why := unsupported(one))), None)


class _Analysis:
    """Texts over the same columns."""

    def __init__(self, catalyst: Catalyst, schema: pa.Schema) -> None:
        self._catalyst = catalyst
        self._schema = schema
        self._problems: list[SqlError] = []
        self._plain = catalyst.relation(schema)
        self._timed = self._plain
        if BATCH_TIME not in {name.lower() for name in schema.names}:
            self._timed = catalyst.relation(schema.append(pa.field(BATCH_TIME, TIMESTAMP)))

    def items(self, select: Sequence[str]) -> tuple[Item, ...]:
        """The items of `select` that can be used, a `*` as one for each column."""
        items: list[Item] = []
        seen: dict[str, str] = {}
        for at, text in enumerate(select):
            key = f"select[{at}]"
            with self._collecting():
                for item in all_columns(self._schema) if text.strip() == "*" else self._item(key, text):
                    _check_name(key, item, seen)
                    _check_type(key, item)
                    items.append(item)
        return tuple(items)

    def stop_if_wrong(self) -> None:
        """Raise SqlError if a text cannot be used; it holds all of them."""
        if self._problems:
            first, *others = self._problems
            raise SqlError(first.key, first.reason, tuple(others), lacks_column=first.lacks_column)

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        try:
            yield
        except SqlError as error:
            self._problems.append(error)

    def parse(self, key: str, text: str) -> None:
        """Have a text parsed, and nothing else."""
        with self._collecting():
            self._asked(key, text, lambda: self._catalyst.parse(text))

    def _item(self, key: str, text: str) -> list[Item]:
        parsed, plan = self._planned(key, text, self._catalyst.select)
        starred = "Star" in parsed.getClass().getSimpleName()
        return [
            Item(
                one.name(),
                _named_by_star(one) if starred else text.strip(),
                self._asked(key, text, partial(self._reader().read, one)),
            )
            for one in each(plan.projectList())
        ]

    def condition(self, key: str, text: str) -> Expression | None:
        """A condition as an expression; None where Spark does not take it for one."""
        read: Expression | None = None
        with self._collecting():
            _, plan = self._planned(key, text, self._catalyst.filter)
            read = self._asked(key, text, lambda: self._reader().read(plan.condition()))
        return read

    def _reader(self) -> Reader:
        return Reader(self._catalyst, [BATCH_TIME, *self._schema.names])

    def _planned(self, key: str, text: str, analyzed: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
        """A text as Spark's parser reads it, and the plan that its analyzer makes of that."""
        relation = self._timed if BATCH_TIME in text.lower() else self._plain
        parsed = self._asked(key, text, lambda: self._catalyst.parse(text))
        plan = self._asked(key, text, lambda: analyzed(parsed, relation))
        if why := refused(plan):
            raise SqlError(key, why)
        return parsed, plan

    def _asked(self, key: str, text: str, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Exception as error:
            said = spark_words(error)
            if said is None:
                raise
            lacks_column = said.code.startswith(("UNRESOLVED_COLUMN", "FIELD_NOT_FOUND"))
            is_unknown = said.code.startswith("UNSUPPORTED_CALL")
            reason = self._unknown_function(text) if is_unknown else str(said)
            raise SqlError(key, reason, lacks_column=lacks_column) from None

    def _unknown_function(self, text: str) -> str:
        """The plain analyzer has no catalog to ask for a function that is not built in."""
        known = set(self._catalyst.functions())
        for one in _functions(self._catalyst.parse(text)):
            if one.lower() not in known:
                near = did_you_mean(one, known)
                return f"Cannot resolve routine `{one}`: Spark has no function of this name{near}"
        return "a function in it is none that Spark has built in"


def _functions(parsed: Any) -> Iterable[str]:
    if parsed.getClass().getSimpleName() == "UnresolvedFunction":
        yield ".".join(each(parsed.nameParts()))
    for one in each(parsed.children()):
        yield from _functions(one)


def _named_by_star(spark: Any) -> str:
    """One of the columns or fields that a star stands for, as it is written in SQL."""
    alias = spark.getClass().getSimpleName() == "Alias"
    return str(spark.child().sql()) if alias else in_backticks(spark.name())


def _check_name(key: str, item: Item, seen: dict[str, str]) -> None:
    """A name that a table may have, and once; Spark takes `a` and `A` for the same."""
    if problem := column_name_problem(item.name):
        raise SqlError(key, f"{problem}: '{item.name}'; give it another with AS")
    other = seen.setdefault(item.name.lower(), key)
    if other != key:
        raise SqlError(key, f"{other} makes a column '{item.name}' too; rename one with AS")


def _check_type(key: str, item: Item) -> None:
    expression = item.expression
    foreign = expression.option(FOREIGN) if isinstance(expression, Call) else None
    if foreign:
        raise SqlError(key, f"a table has no column of type {foreign}; cast '{item.name}' to another type")
    if problem := _type_problem(expression.type):
        raise SqlError(key, f"'{item.name}': {problem}")


def _type_problem(kind: pa.DataType) -> str | None:
    """Why no table can have a column of a type, or None."""
    if pa.types.is_null(kind):
        return "a null has no type; write cast(NULL AS string), or another type"
    if pa.types.is_struct(kind) and not kind.num_fields:
        return "a struct needs a field, as Parquet has no column without one; write struct(... AS name)"
    if pa.types.is_map(kind) and kind.key_type != pa.string():
        return "the keys of a map must be of type string"
    fields = [kind.item_field] if pa.types.is_map(kind) else [kind.field(at) for at in range(kind.num_fields)]
    named = map(column_name_problem, [one.name for one in fields if pa.types.is_struct(kind)])
    return next(filter(None, (*named, *(_type_problem(one.type) for one in fields))), None)


def _output(items: Sequence[Item], input: pa.Schema) -> pa.Schema:
    """The columns that the items make; only one that is taken as it is can be sure to have no nulls."""
    fields = []
    for item in items:
        if isinstance(item.expression, Column) and item.expression.name in input.names:
            fields.append(input.field(item.expression.name).with_name(item.name))
        else:
            fields.append(pa.field(item.name, _nullable(item.expression.type)))
    return pa.schema(fields)


def _nullable(kind: pa.DataType) -> pa.DataType:
    """A type whose fields, elements and values may all be null."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _nullable(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, pa.field("value", _nullable(kind.item_type)))
    return kind
