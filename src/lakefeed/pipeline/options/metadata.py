"""Metadata columns: which parts of an event's origin a table keeps, and under which names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BeforeValidator, WithJsonSchema

from lakefeed.columns.column_types import METADATA
from lakefeed.columns.names import column_name_problem
from lakefeed.pipeline.section import without_repeats
from lakefeed.text import shown, suggestion

DOCUMENT = "as"
"""The key that asks for one JSON column: `metadata: {as: _metadata}`."""


@dataclass(frozen=True)
class MetadataColumns:
    """The metadata columns of one table. `columns` are names of `METADATA` and what the table calls them.

    `document` is the one column that holds everything as JSON text.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    document: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns, in the order of `METADATA`."""
        chosen = [each.with_name(self.columns[each.name]) for each in METADATA if each.name in self.columns]
        return pa.schema([*chosen, *([pa.field(self.document, pa.string())] if self.document else ())])

    def __bool__(self) -> bool:
        """Whether the table keeps anything of an event's origin."""
        return bool(self.columns) or self.document is not None


def metadata_columns(value: bool | tuple[str, ...] | Mapping[str, str]) -> MetadataColumns:
    """What the value of `metadata` in the file asks for."""
    if isinstance(value, Mapping):
        return MetadataColumns(document=value[DOCUMENT]) if DOCUMENT in value else MetadataColumns(value)
    names = METADATA.names if value is True else value or ()
    return MetadataColumns({name: name for name in names})


def _check(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, list | tuple) and value:
        _check_names(value)
        return tuple(value)
    if isinstance(value, Mapping) and value:
        if set(value) != {DOCUMENT}:
            _check_names(list(value))
        _check_columns(list(value.values()))
        return dict(value)
    raise ValueError(f"expected true, a list of columns, or a mapping to new names, got {shown(value)}")


def _check_names(names: list[Any] | tuple[Any, ...]) -> None:
    for name in names:
        if name not in METADATA.names:
            raise ValueError(f"unknown metadata column {shown(name)}{suggestion(str(name), METADATA.names)}")
    without_repeats(tuple(names))


def _check_columns(columns: list[Any]) -> None:
    seen: set[str] = set()
    for name in columns:
        if not isinstance(name, str):
            raise ValueError(f"expected the name of a column, got {shown(name)}")
        if problem := column_name_problem(name):
            raise ValueError(f"'{name}': {problem}")
        if name.lower() in seen:
            raise ValueError(f"makes two columns '{name}', which are one in a table")
        seen.add(name.lower())


MetadataField = Annotated[
    bool | tuple[str, ...] | dict[str, str],
    BeforeValidator(_check),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {"type": "array", "items": {"enum": METADATA.names}, "minItems": 1},
                {
                    "type": "object",
                    "properties": {name: {"type": "string"} for name in METADATA.names},
                    "additionalProperties": False,
                    "minProperties": 1,
                },
                {
                    "type": "object",
                    "properties": {DOCUMENT: {"type": "string"}},
                    "required": [DOCUMENT],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
"""`true`, some of the columns, these under other names, or `{as: NAME}` for one column of JSON text."""
