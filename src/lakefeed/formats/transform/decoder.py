"""Decodes events whose fields are set first, or whose values are coerced: by columns where that goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefeed.events import Events, Refused
from lakefeed.formats import Decoded, Format, Rules
from lakefeed.formats.joining import Part, joined
from lakefeed.formats.json.decoder import JsonDecoder
from lakefeed.formats.refusal import TYPE_CHANGES, Misfit
from lakefeed.formats.transform.columns import ColumnTransform, by_columns, read_schema, with_value
from lakefeed.formats.transform.objects import Objects
from lakefeed.pipeline.options.transform import ORIGIN_FIELDS

_Indexes = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]
_LOOKED_AT_AGAIN = TYPE_CHANGES | {"missing_value"}
"""Refusals that a transform or a coercion may mend."""
_FEW = 4
"""When more than one event in so many does not go by columns, none of a task is tried that way any more."""


class TransformingDecoder:
    """Decodes events for one table. Lives on a worker, for one task.

    Whole columns first: the events as they are, beside them the fields that transforms read. What is refused
    there, or does not go that way, becomes JSON event by event and is decoded once more, strictly.
    """

    def __init__(self, format: Format, schema: pa.Schema, rules: Rules) -> None:
        self._format, self._schema = format, schema
        plain = replace(rules, transforms=(), coerces=False)
        self._objects = Objects(rules.transforms, schema, coerces=rules.coerces)
        self._told = any(expression in ORIGIN_FIELDS for _, expression in rules.transforms)
        self._again = JsonDecoder(schema, plain)
        self._rows = self._again.decode([]).rows.schema
        ignores_new = rules.new_column == "ignore"
        found = by_columns(rules.transforms, schema, ignores_new=ignores_new, coerces=rules.coerces)
        self._columns = found if len(schema) else None
        if self._columns is not None:
            self._plan(self._columns, plain)

    def _plan(self, transforms: Sequence[ColumnTransform], plain: Rules) -> None:
        """What is decoded by columns: the events without what is always set, and what transforms read."""
        made = {one.path[0] for one in transforms if len(one.path) == 1 and not one.may_be_null}
        paths = {one.path for one in transforms}
        kept = [_relaxed(field, paths) for field in self._schema if field.name not in made]
        self._whole = self._format.decoder(pa.schema(kept), replace(plain, dropped=plain.dropped | made))
        read = read_schema(transforms)
        self._read = self._format.decoder(read, Rules(new_column="ignore")) if len(read) else None

    def decode(self, events: Events) -> Decoded:
        """Every event becomes a row or a refusal or is skipped, never two of them."""
        if self._columns is None:
            return self._one_by_one(events, range(len(events)))
        whole = self._whole.decode(events.payloads)
        rows = np.setdiff1d(
            np.arange(len(events)),
            [*(one.index for one in whole.refused), *whole.skipped],
            assume_unique=True,
        )
        batch, good = self._set(events, rows, whole.rows)
        again = {one.index for one in whole.refused if one.code in _LOOKED_AT_AGAIN} | set(
            rows[~good].tolist()
        )
        refused = [one for one in whole.refused if one.code not in _LOOKED_AT_AGAIN]
        mask = pa.array(good)
        rescued = None if whole.rescued is None else whole.rescued.filter(mask)
        parts: list[Part] = [(rows[good].tolist(), Decoded(batch.filter(mask), [], whole.unknown, rescued))]
        if refused:
            parts.append(self._refused(refused))
        if again:
            indexes = sorted(again)
            parts.append((indexes, self._one_by_one(events, indexes)))
            if len(indexes) * _FEW > len(events):
                self._columns = None
        return joined(len(events), parts, {}, whole.skipped)

    def _set(self, events: Events, rows: _Indexes, whole: pa.RecordBatch) -> tuple[pa.RecordBatch, _Mask]:
        """The rows with what transforms set, and which of them are right so."""
        columns = dict(zip(whole.schema.names, whole.columns, strict=True))
        good = np.ones(len(rows), np.bool_)
        assert self._columns is not None
        read = self._read_for(events, rows, good)
        origin = self._origin(events, rows)
        for one in self._columns:
            try:
                values = one.evaluate(read, origin)
            except pa.ArrowInvalid:
                # A number that is too large for its column: each event is looked at by itself.
                good[:] = False
                continue
            if values.null_count and not one.may_be_null:
                good &= values.is_valid().to_numpy(zero_copy_only=False)
            if one.column is not None:
                name, *inner = one.path
                kind = self._rows.field(name).type
                before = columns.get(name)
                if before is None:
                    before = pa.nulls(len(rows), kind)
                columns[name] = with_value(before, kind, tuple(inner), values)
        for field in self._schema if self._columns else ():
            if not field.nullable and columns.get(field.name) is not None:
                good &= columns[field.name].is_valid().to_numpy(zero_copy_only=False)
        made = [_as(columns.get(field.name), field.type, len(rows)) for field in self._rows]
        together = (
            pa.StructArray.from_arrays(made, fields=list(self._rows)) if made else whole.to_struct_array()
        )
        return pa.RecordBatch.from_struct_array(together), good

    def _read_for(self, events: Events, rows: _Indexes, good: _Mask) -> pa.StructArray:
        """What transforms read of each row, all of them good so far; what cannot be read is not."""
        if self._read is None:
            return pa.array([{}] * len(rows), pa.struct([]))
        payloads = events.payloads
        chosen = payloads if len(rows) == len(payloads) else [payloads[row] for row in rows]
        read = self._read.decode(chosen)
        values = read.rows.to_struct_array()
        gone = [*(one.index for one in read.refused), *read.skipped]
        if not gone:
            return values
        good[gone] = False
        return values.take(pa.array(np.cumsum(good) - 1, mask=~good))

    def _origin(self, events: Events, rows: Sequence[int] | _Indexes) -> Mapping[str, pa.Array]:
        if not self._told:
            return {}
        indexes = None if len(rows) == len(events) else [int(row) for row in rows]
        origin = events.origin(indexes)
        return {
            "topic": origin.column("stream"),
            "partition": origin.column("partition"),
            "offset": origin.column("offset"),
            "timestamp": origin.column("timestamp").cast(pa.int64()),
            "timestamp_type": pa.array(events.timestamp_types(indexes), pa.int32()),
        }

    def _one_by_one(self, events: Events, indexes: Sequence[int]) -> Decoded:
        """What becomes of some events, each made JSON by itself, by their order in `indexes`."""
        texts, misfits = self._format.objects([events.payloads[index] for index in indexes])
        columns = {name: column.to_pylist() for name, column in self._origin(events, indexes).items()}
        kept: list[int] = []
        ready: list[bytes | None] = []
        for at, text in enumerate(texts):
            if at in misfits:
                continue
            try:
                origin = {name: values[at] for name, values in columns.items()}
                made = self._objects.rewritten(text, origin) if text else text
            except Misfit as misfit:
                misfits[at] = misfit
                continue
            kept.append(at)
            ready.append(made)
        return joined(len(indexes), [(kept, self._again.decode(ready))], misfits)

    def _refused(self, refused: Sequence[Refused]) -> Part:
        nothing = pa.RecordBatch.from_struct_array(pa.array([], pa.struct(list(self._rows))))
        told = [replace(one, index=at) for at, one in enumerate(refused)]
        return [one.index for one in refused], Decoded(nothing, told)


def _relaxed(field: pa.Field, paths: set[tuple[str, ...]], at: tuple[str, ...] = ()) -> pa.Field:
    """A column that may be null on the way to what is set in it later."""
    here = (*at, field.name)
    if not any(path[: len(here)] == here for path in paths):
        return field
    field = field.with_nullable(True)
    if not pa.types.is_struct(field.type):
        return field
    return field.with_type(pa.struct([_relaxed(inner, paths, here) for inner in field.type]))


def _as(column: pa.Array | None, kind: pa.DataType, count: int) -> pa.Array:
    if column is None:
        return pa.nulls(count, kind)
    return column if column.type == kind else column.cast(kind)
