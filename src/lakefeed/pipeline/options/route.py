"""Routes: one table for each value of a column, at a path that is made from the value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import pyarrow as pa
from pydantic import AfterValidator

from lakefeed.columns.names import column_name_problem
from lakefeed.pipeline.options.paths import Location
from lakefeed.text import shown

Key = tuple[str, ...]
"""The values that choose a table, as they stand in its path: one for each column of the route."""

_COLUMN = re.compile(r"\{([^{}]*)\}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")
_LONGEST = 100


@dataclass(frozen=True)
class Route:
    """A path with columns in braces: `/lake/events_{event_type}`."""

    template: str

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns whose values choose the table."""
        return tuple(dict.fromkeys(_COLUMN.findall(self.template)))

    @cached_property
    def _steps(self) -> list[str]:
        return self.template.split("/")

    @cached_property
    def base(self) -> str:
        """The directory or prefix that contains all tables of the route."""
        first = next(at for at, step in enumerate(self._steps) if "{" in step)
        return "/".join(self._steps[:first])

    @cached_property
    def depth(self) -> int:
        """How many directories below the base a table is."""
        return len(self._steps) - self.base.count("/") - 1

    def path(self, key: Key) -> str:
        """The path of the table of these values."""
        values = dict(zip(self.columns, key, strict=True))
        return _COLUMN.sub(lambda found: values[found[1]], self.template)

    def is_hidden(self, key: Key) -> bool:
        """Whether a directory on the way to the table would have a name that readers pass over."""
        steps = self.path(key).split("/")[self.base.count("/") + 1 :]
        return any(step.startswith(("_", ".")) for step in steps)

    def key_of(self, path: str) -> Key | None:
        """The values that lead to this path; None where the route does not."""
        found = self._pattern.fullmatch(path)
        if found is None:
            return None
        key = tuple(found[f"c{at}"] for at in range(len(self.columns)))
        return None if self.is_hidden(key) else key

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        text, seen = "", set()
        for at, piece in enumerate(_COLUMN.split(self.template)):
            if at % 2 == 0:
                text += re.escape(piece)
                continue
            group = f"c{self.columns.index(piece)}"
            text += f"(?P={group})" if group in seen else rf"(?P<{group}>[A-Za-z0-9_.\-]+)"
            seen.add(group)
        return re.compile(text)


def safe_value(text: str) -> str | None:
    """A value as a part of a path: other characters than letters, digits, `_`, `-` and `.` become `_`.

    None for a value that leaves no name, or one that is too long.
    """
    return _UNSAFE.sub("_", text) if 0 < len(text) <= _LONGEST else None


def can_route(kind: pa.DataType) -> bool:
    """Whether the values of a column can stand in a path."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
    )


def _check_route(text: str) -> str:
    columns = _COLUMN.findall(text)
    if not columns:
        raise ValueError(f"expected a column in braces, as in lake/events_{{event_type}}, got {shown(text)}")
    if "{" in _COLUMN.sub("", text) or "}" in _COLUMN.sub("", text):
        raise ValueError(f"a brace is not closed, or not opened: {shown(text)}")
    for name in columns:
        if problem := column_name_problem(name):
            raise ValueError(f"{{{name}}}: {problem}")
    if "{" in text.partition("://")[2].partition("/")[0]:
        raise ValueError(f"the name of the bucket may not contain a column: {shown(text)}")
    if "{" in Route(text).base or not Route(text).base:
        raise ValueError(f"expected a directory before the first column, got {shown(text)}")
    return text


RouteText = Annotated[Location, AfterValidator(_check_route)]
"""A path with columns in braces, in its one spelling."""
