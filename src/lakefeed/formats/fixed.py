"""Formats that know their columns before they see a payload: how these meet the schema of a table.

Columns that the schema lacks are proposed. Columns that only the schema has are null. A column that the
schema has in a type that cannot hold what the format makes refuses every payload.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.formats import Decoded, Decoder, Rules
from lakefeed.formats.json_columns import is_epoch, stored_column
from lakefeed.formats.json_times import Doubt
from lakefeed.formats.json_values import converter
from lakefeed.formats.refusal import Misfit, Number, name_text, no_payload
from lakefeed.pipeline.types import stored, type_text

Misfits = dict[int, Misfit]
"""Payloads that are refused, by their place."""


@dataclass(frozen=True)
class Columns:
    """What was read from some payloads: a value for each in every column, null for those that are misfits."""

    values: Mapping[str, pa.Array]
    misfits: Misfits = field(default_factory=dict)


class FixedDecoder(Decoder):
    """Decodes payloads of a format that makes the columns `made`; the format reads them."""

    def __init__(self, schema: pa.Schema, made: pa.Schema, rules: Rules) -> None:
        self._schema = schema
        self._row = pa.struct(list(stored(schema)))
        self._made = made
        self._rules = rules
        self._nobody_fits = self._clash()
        new = [column for column in made if column.name not in schema.names]
        self._unknown = pa.schema(new) if new else None

    @abstractmethod
    def read(self, payloads: Sequence[bytes]) -> Columns:
        """Read the made columns; those that are not in the schema may be left out."""

    def holds(self, declared: pa.DataType, made: pa.DataType) -> bool:
        """Whether a column of the declared type can hold values that were read as the made one."""
        if pa.types.is_integer(made):
            return bool(pa.types.is_integer(declared) or is_epoch(declared))
        if pa.types.is_timestamp(made):
            return bool(pa.types.is_timestamp(declared))
        return bool(declared == made)

    def convert(self, column: pa.Array, declared: pa.Field) -> tuple[pa.Array, Doubt]:
        """A column that was read, in the type of the table, and the places that `value` must decide."""
        return stored_column(column, declared)

    def value(self, read: Any, declared: pa.DataType) -> Any:
        """One value that was read, as a parsed JSON value; what that becomes decides a doubtful place."""
        return Number(read) if isinstance(read, int) else read

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every payload becomes a row or a refusal; what becomes of one does not depend on the others."""
        indexes = [index for index, payload in enumerate(payloads) if payload is not None]
        columns = self.read([payload for payload in payloads if payload is not None])
        misfits = dict(columns.misfits)
        children = [self._column(each, columns, misfits, len(indexes)) for each in self._schema]
        if self._nobody_fits:
            misfits = {place: misfits.get(place, self._nobody_fits) for place in range(len(indexes))}
        rows = pa.Array.from_buffers(self._row, len(indexes), [None], children=children)
        if misfits:
            good = np.ones(len(indexes), np.bool_)
            good[list(misfits)] = False
            rows = rows.filter(pa.array(good))
        refused = {indexes[place]: misfit for place, misfit in misfits.items()}
        refused |= {index: no_payload() for index, payload in enumerate(payloads) if payload is None}
        return Decoded(
            pa.RecordBatch.from_struct_array(rows),
            [refused[index].refused(index) for index in sorted(refused)],
            self._unknown if len(rows) else None,
        )

    def _column(self, declared: pa.Field, columns: Columns, misfits: Misfits, count: int) -> pa.Array:
        kind = self._row.field(declared.name).type
        if declared.name not in self._made.names or self._nobody_fits:
            return pa.nulls(count, kind)
        read = columns.values[declared.name]
        column, doubt = self.convert(read, declared)
        if doubt is None:
            return column
        decide = converter(declared)
        decided: dict[int, Any] = {}
        for place in np.flatnonzero(doubt).tolist():
            if place in misfits:
                continue
            try:
                decided[place] = decide(self.value(read[place].as_py(), declared.type))
            except Misfit as misfit:
                misfits[place] = misfit.within(declared.name)
        return _patched(column, decided)

    def _clash(self) -> Misfit | None:
        """Why no payload fits the schema, if that is so."""
        spellings = {name.lower(): name for name in self._schema.names}
        for made in self._made:
            other = spellings.get(made.name.lower(), made.name)
            if other != made.name:
                message = f"differs only by case from {name_text(other)}; a Delta table holds one of them"
                return Misfit("bad_name", message).within(made.name)
        for declared in self._schema:
            if declared.name not in self._made.names:
                if declared.nullable:
                    continue
                message = f"expected {type_text(declared.type)} not null, but this format has no such column"
                return Misfit("missing_value", message).within(declared.name)
            made_type = self._made.field(declared.name).type
            if not self.holds(declared.type, made_type):
                message = f"expected {type_text(declared.type)}, but this format makes {type_text(made_type)}"
                return Misfit("wrong_type", message).within(declared.name)
        return None


def _patched(column: pa.Array, decided: dict[int, Any]) -> pa.Array:
    """The column with other values at some places."""
    if not decided:
        return column
    places = sorted(decided)
    mask = np.zeros(len(column), np.bool_)
    mask[places] = True
    return pc.replace_with_mask(column, mask, pa.array([decided[place] for place in places], column.type))
