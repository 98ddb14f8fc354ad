"""What a table makes of its events: which columns they have, and what SQL makes of those.

Without `select` and `python`, the columns of the events are those of the table. With one of them they are
not, and a table property keeps them, so that each run decodes by the same types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
import pyarrow as pa
from deltalake import Schema

from lakefeed.columns.column_types import EVENT_NAME, meant, naming, stored, type_text
from lakefeed.columns.names import keeping_names
from lakefeed.columns.naming import last_names
from lakefeed.columns.widening import merge_proposals
from lakefeed.errors import Problem, SqlError, TableError
from lakefeed.pipeline.options.evolve import RESCUED, NewColumn
from lakefeed.pipeline.options.shaping import has_star
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.table import Table
from lakefeed.rows.conform import holds
from lakefeed.sql.expression import Column, Expression
from lakefeed.sql.field_names import with_column_names
from lakefeed.sql.projection import Item, Otherwise, Projection
from lakefeed.tables.shape import Shape

EVENTS = "lakefeed.events"
"""The table property with the columns of the events, as Delta writes a schema."""
RETURNED = "lakefeed.returned"
"""The same for the columns that the user's function returns, where `select` makes others of them."""

Rules = Mapping[str, tuple[str, Otherwise]]
Analyze = Callable[[pa.Schema, Sequence[str], str | None, Rules, pa.Schema | None], Projection]
"""`lakefeed.sql.analysis.analyze` with the JVM that it asks."""

_NO_COLUMNS = pa.schema([])
CONDITIONS = ("delete_when", "truncate_when")


def nobody(
    input: pa.Schema, select: Sequence[str], where: str | None, expect: Rules, table: pa.Schema | None
) -> Projection:
    """For those who only look at tables, and never at what becomes of events."""
    raise AssertionError("nobody was named who analyzes SQL")


@dataclass
class Shaping:
    """How one table shapes its rows, by the pipeline file."""

    spec: Table
    analyze: Analyze = nobody
    located: Callable[[SqlError], SqlError] = lambda error: error
    """The same error with its line in the pipeline file."""
    _conditions: dict[tuple[str, pa.Schema], Expression | None] = field(default_factory=dict)
    _known: list[tuple[tuple[pa.Schema, pa.Schema | None], Projection | SqlError]] = field(
        default_factory=list
    )

    @property
    def uses_sql(self) -> bool:
        """Whether there is anything to analyze."""
        return bool(self.spec.select or self.spec.where or self.spec.expect)

    @property
    def beside(self) -> pa.Schema:
        """Columns that rows have beside those of the events: what did not fit, and where they came from."""
        rescued = [pa.field(RESCUED, pa.string())] if self.spec.evolve.rescues else []
        return pa.schema([*rescued, *self.spec.metadata_columns.schema])

    def events(self, shape: Shape | None, own: pa.Schema | None) -> pa.Schema | None:
        """The columns to decode, in declared types; None while they are to be inferred.

        `own` are columns that the table has got from events, before `select` was there.
        """
        declared = self.spec.declared
        if declared is not None and self.spec.python:
            declared = pa.schema([one.with_nullable(True) for one in declared])
        kept = _kept(shape, EVENTS)
        if kept is None and declared is None:
            kept = own
        if kept is None:
            return declared
        if declared is None:
            return kept
        known = {one.name: one for one in kept}
        mine = [
            as_declared(known[one.name], one).with_nullable(one.nullable) if one.name in known else one
            for one in declared
        ]
        return pa.schema([*mine, *(one for one in kept if one.name not in declared.names)])

    def returned(self, shape: Shape | None, columns: pa.Schema | None) -> pa.Schema | None:
        """What the user's function returns; None while that is not known."""
        return _kept(shape, RETURNED) if self.spec.select else columns

    def projection(self, rows: pa.Schema | None, table: pa.Schema | None = None) -> Projection | None:
        """`select`, `where` and `expect` over rows with these declared columns; None without them.

        `table` are the columns that the table has by now. Raises SqlError with the line in the file.
        """
        if rows is None or not self.uses_sql:
            return None
        read = pa.schema([*stored(rows), *(() if self.spec.python else self.beside)]).remove_metadata()
        table = None if table is None or self.spec.select is None else stored(table)
        found = next((one for known, one in self._known if known == (read, table)), None)
        if found is None:
            try:
                found = self._analyzed(read, table)
            except SqlError as error:
                found = self.located(error)
            self._known = [*self._known[-3:], ((read, table), found)]
        if isinstance(found, SqlError):
            raise found
        if found.needs_spark and self.spec.python:
            # Several rows of an event would part on their way, and an event is taken whole.
            raise TableError(
                f"a table with `python` has no SQL that only Spark runs: {found.needs_spark}.\n"
                "Give the function to one table, and the SQL to another that takes its rows with `from`."
            )
        return found

    def condition(self, option: str, rows: pa.Schema | None) -> Expression | None:
        """`delete_when` or `truncate_when` over rows with these declared columns; None without it.

        Raises SqlError with the line in the file.
        """
        text = getattr(self.spec, option)
        if text is None or rows is None:
            return None
        read = pa.schema([*stored(rows), *(() if self.spec.python else self.beside)]).remove_metadata()
        if (option, read) not in self._conditions:
            try:
                found = self.analyze(read, (), self._in_table(text, read), {}, None)
                if found.needs_spark:
                    why = found.needs_spark.removesuffix(" (where)")
                    raise SqlError(option, f"{why}; write it with what needs no Spark, such as comparisons")
            except SqlError as error:
                raise self.located(SqlError(option, error.reason)) from error
            self._conditions[option, read] = found.where
        return self._conditions[option, read]

    def settled(self, rows: pa.Schema | None, table: pa.Schema | None = None) -> Projection | None:
        """The same, but None where columns that were inferred are not all that `select` wants by now.

        Events are asked once more then: they may have what nobody wanted before.
        """
        try:
            return self.projection(rows, table)
        except SqlError as error:
            if self.spec.declared is not None or self.grows or not self.spec.reshapes or not error.may_come:
                raise
            return None

    @property
    def grows(self) -> bool:
        """Whether a new column of the events is one of the table."""
        return has_star(self.spec.select or ())

    def new_column(self, rows: pa.Schema | None) -> NewColumn:
        """What becomes of fields that no column is known for."""
        rule = self.spec.evolve.new_column
        if rows is None:
            return "add"
        if self.grows or self.spec.python:
            return rule
        projection = self.settled(rows)
        if projection is None:
            return "add"
        return "rescue" if rule == "rescue" and RESCUED in projection.columns() else "ignore"

    def needed(self, rows: pa.Schema) -> pa.Schema:
        """Of columns that were inferred, those that matter: without a `*`, what the texts name."""
        if self.grows or self.spec.python:
            return rows
        projection = self.projection(rows)
        read = projection.columns() if projection else set()
        for option in CONDITIONS:
            condition = self.condition(option, rows)
            read |= set() if condition is None else condition.columns()
        declared = set((self.spec.declared or _NO_COLUMNS).names)
        return pa.schema([one for one in rows if one.name in read or one.name in declared])

    def made(self, rows: pa.Schema) -> pa.Schema:
        """The columns that the table gets of rows with these, derived ones of `partition_by` aside."""
        if self.spec.select is None:
            return pa.schema([*stored(rows), *(() if self.spec.python else self.beside)])
        projection = self.projection(rows)
        assert projection is not None
        read = {one.name: one for one in stored(rows)}
        return pa.schema(
            [_told(one, item, read) for one, item in zip(projection.output, projection.items, strict=True)]
        )

    def kept(self, events: pa.Schema | None, returned: pa.Schema | None = None) -> dict[str, str]:
        """The table properties that keep columns which the table itself does not have."""
        if not self.spec.reshapes:
            return {}
        found = {} if events is None else {EVENTS: _written(events)}
        if returned is not None and self.spec.python and self.spec.select:
            found[RETURNED] = _written(returned)
        return found

    def lacking(self, name: str, table: pa.Schema, made: pa.Schema) -> pa.Schema:
        """What of the columns that `select` makes must be compared with the table's, or added to them.

        A wider column of the table holds what a narrower one makes. Raises TableError for any other.
        """
        have, found = {one.name: one for one in table}, []
        for one in made:
            there = have.get(one.name)
            if there is None or pa.types.is_nested(one.type):
                found.append(one)
            elif not holds(there.type, one.type):
                raise self._other_type(name, there, one)
        needed = [one.name for one in table if not one.nullable and one.name not in made.names]
        if needed:
            raise TableError(
                f"table {name}: column {needed[0]} is `not null` in the table, and `select` does not make "
                f"it.\nAdd it to `select`, or choose another path."
            )
        return pa.schema(found)

    def _other_type(self, name: str, there: pa.Field, made: pa.Field) -> TableError:
        key = next(
            (f"select[{at}]" for at, text in enumerate(self.spec.select or ()) if _names(text, made.name)),
            "select",
        )
        have, want = type_text(there.type), type_text(made.type)
        reason = (
            f"makes column {made.name} {want}, and the table has {have}. Write `cast(... AS {have}) AS "
            f"{made.name}`, give it another name, or choose another path"
        )
        error = self.located(SqlError(key, reason))
        return error if str(error) != f"{key}: {reason}" else TableError(f"table {name}: {error}")

    def _analyzed(self, read: pa.Schema, table: pa.Schema | None) -> Projection:
        spec = self.spec
        rules = {name: (self._in_table(one.that, read), one.otherwise) for name, one in spec.expect.items()}
        select = [self._in_table(text, read) for text in spec.select or ()]
        where = None if spec.where is None else self._in_table(spec.where, read)
        with keeping_names(kept=spec.keeps_names):
            return self.analyze(read, select, where, rules, table)

    @staticmethod
    def _in_table(text: str, columns: pa.Schema) -> str:
        """SQL with the names of columns, where it has those of their fields in backticks."""
        # What is outside counts where two fields inside have one name.
        fields = dict(reversed(list(last_names(columns))))
        return with_column_names(text, columns.names, fields)


def located(pipeline: Pipeline, table: str, error: SqlError) -> SqlError:
    """The same error with its line: `shop.yaml:12: tables.clicks.select.1: ...`."""
    found = SqlError(error.key, error.reason, error.others, lacks_column=error.lacks_column)
    found.args = (str(sql_problem(pipeline, table, error)),)
    return found


def sql_problem(pipeline: Pipeline, table: str, error: SqlError) -> Problem:
    """What is wrong with a text of a table, with its line in the pipeline file."""
    steps = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", error.key)]
    return pipeline.problem(("tables", table, *steps), error.reason)


def as_declared(have: pa.Field, declared: pa.Field | None) -> pa.Field:
    """The table's column with the declared type, which also says how the payload writes it."""
    if declared is None:
        return have
    names = {**naming(declared), **naming(have)}
    return pa.field(have.name, _declared_type(have.type, declared.type), have.nullable, names or None)


def _declared_type(have: pa.DataType, declared: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_struct(have) and types.is_struct(declared):
        known = {one.name: one for one in declared}
        return pa.struct([as_declared(one, known.get(one.name)) for one in have])
    if types.is_list(have) and types.is_list(declared):
        inner = _declared_type(have.value_type, declared.value_type)
        return pa.list_(declared.value_field.with_type(inner))
    if types.is_map(have) and types.is_map(declared):
        inner = _declared_type(have.item_type, declared.item_type)
        return pa.map_(pa.string(), declared.item_field.with_type(inner))
    return declared


def merged(known: pa.Schema | None, proposal: pa.Schema | None) -> pa.Schema:
    """Columns that were known, and those that have come."""
    return merge_proposals(known or _NO_COLUMNS, proposal or _NO_COLUMNS)


def _kept(shape: Shape | None, name: str) -> pa.Schema | None:
    text = shape.properties.get(name) if shape else None
    if text is None:
        return None
    return pa.schema([meant(one) for one in pa.schema(Schema.from_json(text).to_arrow())])


def _written(columns: pa.Schema) -> str:
    # The metadata of a column comes in any order.
    text = Schema.from_arrow(stored(columns)).to_json()
    return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()


def _told(made: pa.Field, item: Item, read: Mapping[str, pa.Field]) -> pa.Field:
    """A column that is only passed on keeps what its metadata says, such as that its text is JSON."""
    passed = item.expression
    if not isinstance(passed, Column) or passed.name not in read:
        return made
    metadata = read[passed.name].metadata or {}
    if passed.name != made.name:
        metadata = {key: value for key, value in metadata.items() if key != EVENT_NAME}
    return made.with_metadata(metadata or None)


def _names(text: str, name: str) -> bool:
    """Whether a select item gives this name to what it makes."""
    return bool(re.search(rf"(?:^|[\s.`]){re.escape(name)}`?\s*$", text, re.IGNORECASE))
