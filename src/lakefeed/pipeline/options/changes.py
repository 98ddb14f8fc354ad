"""Tables whose rows change by their key: what the key is, what makes a change newer, what deletes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field

from lakefeed.columns.change_columns import WHOLE_ROW
from lakefeed.columns.column_types import type_text
from lakefeed.columns.names import ColumnName
from lakefeed.pipeline.section import NAMES, Section, as_list, without_repeats
from lakefeed.text import did_you_mean
from lakefeed.units import Duration

Mode = Literal["append", "overwrite", "upsert", "history", "deduplicate"]
Updates = Literal["copy_on_write", "merge_on_read"]

_OF_CHANGES = frozenset(
    ("sequence_by", "delete_when", "truncate_when", "ignore_nulls", "tombstones", "updates")
)
KEYED: Mapping[str, frozenset[str]] = {
    "upsert": _OF_CHANGES,
    "history": _OF_CHANGES | {"track", "track_except", "valid_from", "valid_to", "is_current", "time_by"},
    "deduplicate": frozenset(("within",)),
}
"""The modes that go by `keys`, and the other options of each."""

CHANGING = ("upsert", "history")
"""The modes that change rows which are there: who follows such a table reads its change data feed."""
BROUGHT = ("__sequence", "__timestamp")
"""What orders the changes of a change feed: the version, and when it was committed."""

INTERVAL: Mapping[str, str | None] = {"valid_from": "valid_from", "valid_to": "valid_to", "is_current": None}
"""The options that name columns which `history` makes, with the names that they have by default."""


def interval_columns(options: Mapping[str, object]) -> dict[str, str]:
    """The columns that `history` makes, each with the option that it comes from."""
    names = {option: options.get(option) or default for option, default in INTERVAL.items()}
    found = {name: option for option, name in names.items() if isinstance(name, str)}
    if options.get("time_by"):
        found |= {time_column(str(names[option])): "time_by" for option in ("valid_from", "valid_to")}
    return found


def time_column(name: str) -> str:
    """The column that says with `time_by` when an end of an interval was, by the column of that end."""
    return f"{name}_time"


ColumnNames = Annotated[
    tuple[ColumnName, ...],
    BeforeValidator(as_list),
    AfterValidator(without_repeats),
    NAMES,
]
"""A column, or a list of them."""


def _of_whole_rows(value: object) -> object:
    return WHOLE_ROW if value == "all" else value


KeyNames = Annotated[ColumnNames, BeforeValidator(_of_whole_rows)]
"""The same, or `all`: the row as a whole is its key."""


class Within(Section):
    """How far back `deduplicate` looks for a row with the same key."""

    column: ColumnName = Field(description="A column with a time or a date.", examples=["event_time"])
    age: Duration = Field(
        description="A row is left out if one with its key is there whose time is no more than this before "
        "its own.",
        examples=["7d"],
    )


def key_problem(kind: pa.DataType) -> str | None:
    """Why a column of a type cannot be part of a key: floats that look alike need not be the same."""
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        return f"{type_text(kind)} cannot be part of a key"
    return None


def sequence_problem(kind: pa.DataType) -> str | None:
    """Why changes cannot be ordered by a column of a type."""
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        return f"{type_text(kind)} gives changes no order"
    return None


def within_problem(kind: pa.DataType) -> str | None:
    """Why a column of a type does not tell how old a row is."""
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return f"expected a timestamp or a date, got {type_text(kind)}"
    return None


def time_problem(kind: pa.DataType) -> str | None:
    """Why a column of a type does not say when a change was made."""
    return None if pa.types.is_timestamp(kind) else f"expected a timestamp, got {type_text(kind)}"


_PROBLEMS = {
    "keys": key_problem,
    "sequence_by": sequence_problem,
    "within": within_problem,
    "time_by": time_problem,
}


def column_problems(
    options: Mapping[str, Iterable[str]], columns: Mapping[str, pa.Field | None]
) -> Iterator[tuple[str, str]]:
    """What is wrong with the columns that options name, where the columns of the table are known."""
    for option, names in options.items():
        for name in names:
            known = columns.get(name)
            if name not in columns:
                yield option, f"the table has no column '{name}'{did_you_mean(name, columns)}"
            elif known is not None and option in _PROBLEMS and (problem := _PROBLEMS[option](known.type)):
                yield option, f"column '{name}': {problem}"


def option_problems(mode: str, given: Collection[str]) -> Iterator[tuple[str, str]]:
    """Options that have no effect in a mode, or that it needs."""
    for option in ("keys", *sorted(frozenset().union(*KEYED.values()))):
        modes = [one for one, own in KEYED.items() if option in {*own, "keys"}]
        if option in given and mode not in modes:
            wanted = " or ".join(f"`mode: {one}`" for one in modes)
            yield option, f"has an effect only with {wanted}; add that, or remove this"
    if mode == "history" and "track" in given and "track_except" in given:
        yield "track_except", "has no effect beside `track`; remove one of them"
    if mode in KEYED and "shuffle_by_partition" in given:
        yield "shuffle_by_partition", f"has no effect with `mode: {mode}`, as one process writes its files"
