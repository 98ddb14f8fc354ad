"""The names of pipelines, sources, tables and columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from lakefeed.text import shown

# Also the name of a folder that is emptied at every start, hence neither `.` nor `..`.
_PIPELINE_NAME = r"^(?!\.{1,2}$)[A-Za-z0-9_.\-]{1,100}$"
_PART_NAME = r"^[A-Za-z0-9_\-]+$"


def _check_pipeline_name(name: str) -> str:
    if not re.fullmatch(_PIPELINE_NAME, name):
        raise ValueError(f"expected at most 100 letters, digits, '_', '-' and '.', got {shown(name)}")
    return name


def _check_part_name(name: str) -> str:
    if not re.fullmatch(_PART_NAME, name):
        raise ValueError("a name may hold letters, digits, '_' and '-'")
    return name


PipelineName = Annotated[
    str, AfterValidator(_check_pipeline_name), WithJsonSchema({"type": "string", "pattern": _PIPELINE_NAME})
]
"""Part of every transaction id in every table's log: renaming a pipeline makes it start anew."""

PartName = Annotated[
    str, AfterValidator(_check_part_name), WithJsonSchema({"type": "string", "pattern": _PART_NAME})
]
"""The name of a source or of a table."""

_REFUSED = {
    " ": "a space",
    ",": "','",
    ";": "';'",
    "{": "'{'",
    "}": "'}'",
    "(": "'('",
    ")": "')'",
    "=": "'='",
}
_REFUSED |= {"\n": "a line break", "\r": "a line break", "\t": "a tab", "\0": "the character NUL"}
_REFUSED_ALWAYS = "\0"
_LONGEST = 255


_KEPT: ContextVar[bool] = ContextVar("names_kept", default=False)


@contextmanager
def keeping_names(*, kept: bool) -> Iterator[None]:
    """Where names are kept, a column may be called what only a table with column mapping takes."""
    token = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(token)


def column_name_problem(name: str) -> str | None:
    """Why a column or struct field may not be called so, or None; see `keeping_names`.

    Spark refuses these characters in Delta, and Arrow ends every name at a NUL. Nobody refuses long names,
    but every version of the schema repeats them.
    """
    if not name:
        return "a column needs a name"
    if len(name) > _LONGEST or len(name.encode("utf-8", "replace")) > _LONGEST:
        return f"a column name may not be longer than {_LONGEST} bytes"
    refused = _REFUSED_ALWAYS if _KEPT.get() else _REFUSED
    found = next((character for character in name if character in refused), None)
    return f"a column name may not contain {_REFUSED[found]}" if found else None


def clean_column_name(name: str) -> str:
    """The name with `_` in place of each character that no column name may contain; `_` for no name."""
    return "".join("_" if character in _REFUSED else character for character in name) or "_"


def cleaned_in_lower_case(name: str) -> str:
    """The same in lower case."""
    return clean_column_name(name).lower()


def kept_name(name: str) -> str:
    """The name as it is; `_` for no name."""
    return name or "_"


def uncleanable(name: str) -> str | None:
    """Why even the cleaned name of a field is no column name, or None."""
    return column_name_problem(name if "\0" in name else clean_column_name(name))


def free_name(name: str, used: Collection[str]) -> str:
    """The name, with the first number from 2 on that is free where `used`, in lower case, has the name."""
    if name.lower() not in used:
        return name
    return next(one for number in count(2) if (one := f"{name}_{number}").lower() not in used)


def _check_column_name(name: str) -> str:
    if problem := column_name_problem(name):
        raise ValueError(problem if uncleanable(name) else f"{problem}; write '{clean_column_name(name)}'")
    return name


ColumnName = Annotated[str, AfterValidator(_check_column_name)]
"""A column name that every engine takes, without column mapping."""
