"""A filter on partition columns: comparisons joined by `and`, as in `country = 'DE' and year >= 2026`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakefeed.errors import TableError
from lakefeed.pipeline.types import type_text
from lakefeed.pipeline.wording import did_you_mean, shown

_VALUE = r"(?:'(?:[^']|'')*'|[\w.+\-:]+)"
_TERM = re.compile(
    rf"""\s*(?P<column>[^\s=<>!()',]+)\s*
        (?:(?P<sign>=|!=|<>|<=|>=|<|>)\s*(?P<value>{_VALUE})
          |in\s*\(\s*(?P<values>{_VALUE}(?:\s*,\s*{_VALUE})*)\s*\))\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_AND = re.compile(r"and\s", re.IGNORECASE)
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Condition:
    """One comparison: a column, a sign (`in` for several values) and the values as they were written."""

    column: str
    sign: str
    values: tuple[str, ...]

    def holds(self, value: Any, kind: pa.DataType) -> bool:
        """Whether it holds for a value of the column. A null is equal to nothing, as in SQL."""
        if value is None:
            return False
        wanted = [_typed(text, kind, self.column) for text in self.values]
        return value in wanted if self.sign == "in" else bool(_SIGNS[self.sign](value, wanted[0]))


def parse_partition_filter(text: str) -> tuple[Condition, ...]:
    """Read a filter; ValueError where it is not one."""
    found, at = [], 0
    while True:
        match = _TERM.match(text, at)
        if match is None:
            raise ValueError(
                "expected comparisons of partition columns such as country = 'DE' and day >= '2026-11-01', "
                f"got {shown(text)}"
            )
        written = re.findall(_VALUE, match["values"] or match["value"])
        found.append(Condition(match["column"], match["sign"] or "in", tuple(map(_unquoted, written))))
        if match.end() == len(text):
            return tuple(found)
        joined = _AND.match(text, match.end())
        if joined is None:
            raise ValueError(f"expected `and` between comparisons, got {shown(text[match.end() :])}")
        at = joined.end()


def check_partition_filter(conditions: tuple[Condition, ...], columns: Mapping[str, pa.DataType]) -> None:
    """Raise TableError for a column that the table is not partitioned by, or a value of another type."""
    for condition in conditions:
        if condition.column not in columns:
            near = did_you_mean(condition.column, columns) or f"; they are {', '.join(columns) or 'none'}"
            raise TableError(f"'{condition.column}' is no partition column of the table{near}")
        for text in condition.values:
            _typed(text, columns[condition.column], condition.column)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def _typed(text: str, kind: pa.DataType, column: str) -> Any:
    try:
        return pa.scalar(text).cast(kind).as_py()
    except pa.ArrowInvalid:
        raise TableError(f"'{text}' is no {type_text(kind)}, which column '{column}' is") from None
