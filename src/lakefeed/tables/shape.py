"""The shape of a table: all that its files, and those who add to them, depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import orjson
import pyarrow as pa
from deltalake import DeltaTable, Schema

from lakefeed.columns.mapping import HIGHEST_ID, is_mapped, physical_name, unmapped
from lakefeed.tables.column_mapping import highest_id, mapped

_OF_THE_LOG = ("delta.checkpoint", "delta.logRetention", "delta.deletedFileRetention", "delta.enableExpired")
"""Properties that say how long what is kept: no file depends on them."""


@dataclass(frozen=True)
class Shape:
    """What a table is at one version. A batch is planned with one, and lands only in a table of the same."""

    table_id: str
    columns: str = field(repr=False)
    """The schema as the log has it, in JSON; it holds more than Arrow can."""
    partition_columns: tuple[str, ...]
    reader: int
    writer: int
    features: frozenset[str]
    """The features that the protocol names; there are none before writer version 7."""
    properties: Mapping[str, str]

    def with_columns(self, schema: pa.Schema) -> Shape:
        """What the table would be with other columns."""
        columns = Schema.from_arrow(unmapped(schema)).to_json()
        if not self.is_mapped:
            return replace(self, columns=columns)
        columns, highest = mapped(columns, self.columns, self.table_id, highest_id(self.properties))
        return replace(self, columns=columns, properties={**self.properties, HIGHEST_ID: str(highest)})

    @property
    def is_mapped(self) -> bool:
        """Whether files and log have other names of columns than the table."""
        return is_mapped(self.properties)

    @classmethod
    def of(cls, delta: DeltaTable) -> Shape:
        """The shape of a table as a handle knows it."""
        protocol, metadata = delta.protocol(), delta.metadata()
        return cls(
            str(metadata.id),
            # The metadata of a column comes in any order.
            orjson.dumps(orjson.loads(delta.schema().to_json()), option=orjson.OPT_SORT_KEYS).decode(),
            tuple(metadata.partition_columns),
            protocol.min_reader_version,
            protocol.min_writer_version,
            frozenset((*(protocol.reader_features or ()), *(protocol.writer_features or ()))),
            dict(metadata.configuration),
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns in Arrow types."""
        return pa.schema(Schema.from_json(self.columns).to_arrow())

    @cached_property
    def physical_names(self) -> dict[str, str]:
        """What files and log call each column."""
        return {field.name: physical_name(field) for field in self.schema}

    def difference(self, other: Shape) -> str | None:
        """What of the other shape would make files of this one wrong; None when they fit."""
        if self.table_id != other.table_id:
            return "it is another table"
        if self.columns != other.columns:
            return "its columns have changed"
        if self.partition_columns != other.partition_columns:
            return f"it is partitioned by {', '.join(other.partition_columns) or 'nothing'} now"
        if (self.reader, self.writer, self.features) != (other.reader, other.writer, other.features):
            return "its protocol has changed"
        mine, theirs = _telling(self.properties), _telling(other.properties)
        changed = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
        return f"its property {changed[0]} has changed" if changed else None


def is_on(properties: Mapping[str, Any], name: str) -> bool:
    """Whether a property of a table says true."""
    return str(properties.get(name, "")).lower() == "true"


def _telling(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in properties.items()
        if name.startswith("delta.") and not name.startswith(_OF_THE_LOG)
    }
