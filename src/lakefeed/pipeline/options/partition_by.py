"""`partition_by`: columns, and functions of time, by whose values a table is laid out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.columns.names import column_name_problem
from lakefeed.errors import TableError
from lakefeed.text import did_you_mean, shown, suggestion

_ENTRY = re.compile(
    r"""(?:(?P<function>\w+)\s*\(\s*(?P<argument>`[^`]+`|[^,()`]+?)\s*(?:,\s*(?P<quote>['"])(?P<pattern>.*?)(?P=quote)\s*)?\)
        |(?P<column>`[^`]+`|[^\s()`]+))
        (?:\s+as\s+(?P<name>`[^`]+`|\S+))?""",
    re.VERBOSE | re.IGNORECASE,
)
_FUNCTION_TYPES: dict[str, pa.DataType] = {
    "year": pa.int32(),
    "month": pa.string(),
    "day": pa.date32(),
    "hour": pa.string(),
    "strftime": pa.string(),
}
# Names of days and months depend on the locale of the machine, hence numbers only.
_DIRECTIVES = "YymdHMSjGVuF%"


@dataclass(frozen=True)
class PartitionField:
    """One entry of `partition_by`: the column it reads, the function of it, and the column that it becomes.

    Values by function: year 2026, month '2026-11', day the date, hour '2026-11-15-10', all in UTC.
    """

    text: str
    column: str
    function: str | None
    pattern: str | None
    name: str

    @property
    def derived(self) -> bool:
        """Whether the table gets a further column for it."""
        return self.name != self.column

    def may_be_encoded(self, kind: pa.DataType | None) -> bool:
        """Whether the directory of a value may have percent signs; `kind` is the type of a plain column."""
        if self.name != quote(self.name, safe=""):
            return True
        if self.function == "strftime":
            text = re.sub("%[A-Za-z]", "0", self.pattern or "")
            return text != quote(text, safe="")
        types = (pa.types.is_string, pa.types.is_binary, pa.types.is_timestamp, pa.types.is_floating)
        return self.function is None and kind is not None and any(one(kind) for one in types)

    def arrow_type(self, source: pa.DataType) -> pa.DataType:
        """The type of the partition column, given the stored type of the column that it reads."""
        return source if self.function is None else _FUNCTION_TYPES[self.function]


def parse_partition_field(text: str) -> PartitionField:
    """Read one entry: `country`, `day(event_time)` or `strftime(event_time, '%Y-%m') as month`."""
    match = _ENTRY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a column or a function such as day(event_time), got {shown(text)}")
    function = match["function"].lower() if match["function"] else None
    column = (match["argument"] or match["column"]).strip("`")
    _check_function(function, match["pattern"], column, match["function"])
    name = (match["name"] or "").strip("`") or (f"{column}_{function}" if function else column)
    if problem := column_name_problem(name):
        raise ValueError(f"{problem}, got {shown(name)}")
    return PartitionField(text, column, function, match["pattern"], name)


def _check_function(function: str | None, pattern: str | None, column: str, written: str | None) -> None:
    if function is None:
        return
    if function not in _FUNCTION_TYPES:
        raise ValueError(f"unknown function '{written}'{suggestion(function, _FUNCTION_TYPES)}")
    if function != "strftime" and pattern is not None:
        raise ValueError(f"{function} takes only a column, got {shown(pattern)} as well")
    if function == "strftime":
        _check_pattern(pattern, column)


def _check_pattern(pattern: str | None, column: str) -> None:
    if not pattern:
        raise ValueError(f"strftime needs a pattern, such as strftime({column}, '%Y-%m')")
    directives = re.findall(r"%(.?)", pattern)
    unknown = next((found for found in directives if found == "" or found not in _DIRECTIVES), None)
    if unknown is not None:
        known = " ".join(f"%{letter}" for letter in _DIRECTIVES)
        raise ValueError(f"unknown '%{unknown}' in the pattern {shown(pattern)}; known are {known}")
    if not any(found != "%" for found in directives):
        raise ValueError(f"the pattern {shown(pattern)} is the same for every row; write one such as '%Y-%m'")


def partition_problems(fields: Iterable[PartitionField], schema: pa.Schema) -> Iterator[tuple[int, str]]:
    """What is wrong with the entries for a table of this schema: the index of the entry, and a sentence."""
    taken = {name.casefold() for name in schema.names}
    names: set[str] = set()
    plain: set[str] = set()
    for index, field in enumerate(fields):
        folded = field.name.casefold()
        problem = _column_problem(field, schema)
        if problem is None and folded in names:
            problem = (
                f"'{field.name}' is a partition column already; give this one a name: {field.text} as NAME"
            )
        if problem is None and field.derived and folded in taken:
            problem = (
                f"the table has a column '{field.name}' already; give this one a name: {field.text} as NAME"
            )
        if problem is not None:
            yield index, problem
        names.add(folded)
        plain |= set() if field.derived else {folded}
    if schema.names and plain >= taken:
        yield 0, "every column is a partition column; at least one must be left for the files"


def _column_problem(field: PartitionField, schema: pa.Schema) -> str | None:
    if field.column not in schema.names:
        return f"the table has no column '{field.column}'{did_you_mean(field.column, schema.names)}"
    kind = schema.field(field.column).type
    if field.function is not None:
        needed = "timestamp" if field.function == "hour" else "timestamp or date"
        timely = pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and field.function != "hour")
        return (
            None
            if timely
            else f"{field.function} needs a {needed} column, '{field.column}' is {type_text(kind)}"
        )
    refused = pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind)
    return f"a table cannot be partitioned by a column of type {type_text(kind)}" if refused else None


def check_partitioning(fields: Iterable[PartitionField], schema: pa.Schema) -> None:
    """Raise TableError where the entries do not fit the schema; for tables whose schema was not declared."""
    entries = tuple(fields)
    for index, problem in partition_problems(entries, schema):
        raise TableError(f"partition_by: {entries[index].text}: {problem}")
