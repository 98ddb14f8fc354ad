"""Events become rows of a table: payloads by the format of their source, columns as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import JSON, type_text
from lakefeed.columns.widening import holds_all
from lakefeed.events import ORIGIN, Events, SomeEvents
from lakefeed.formats import Decoded, Decoder, Format, Rules
from lakefeed.formats.fit.conversions import as_json
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.fit.json_text import json_text, json_texts, quoted
from lakefeed.formats.fit.rescue import Rescued
from lakefeed.formats.joining import joined
from lakefeed.formats.key import KeyDecoder
from lakefeed.formats.refusal import Misfit, Misfits, shown
from lakefeed.formats.transform.decoder import TransformingDecoder
from lakefeed.handles.retype import Retyper
from lakefeed.pipeline.options.event_key import ONE_VALUE
from lakefeed.rows.changes import ChangePlan
from lakefeed.sources import Source


class EventDecoder:
    """Decodes events against one schema. A source of columns needs no format: its columns are only fitted.

    With `keys`, an event without a payload is what its key says.
    """

    def __init__(
        self, format: Format, columns: pa.Schema, rules: Rules, keys: KeyDecoder | None = None
    ) -> None:
        self._format, self._columns, self._rules, self._keys = format, columns, rules, keys

    def decode(self, events: Events) -> Decoded:
        """Every event becomes a row or a refusal or is skipped, never two of them."""
        if events.refused:
            return replace(self._fitter.nothing(), refused=list(events.refused))
        if events.columns is not None and not len(events):
            return self._fitter.nothing(events.columns.schema)
        if events.columns is not None:
            misfits, rescued = self._unfit(events, events.columns.schema)
            columns = self._converted(self._with_texts(events), misfits)
            return self._fitter.fit(columns.to_struct_array(), misfits, rescued=rescued)
        if self._keys is None or None not in events.payloads:
            return self._decoded(events)
        payloads = events.payloads
        gone = [at for at, payload in enumerate(payloads) if payload is None]
        there = [at for at, payload in enumerate(payloads) if payload is not None]
        keys = events.origin(gone).column("key").to_pylist()
        decoded = self._decoded(SomeEvents(events, there))
        return joined(len(payloads), [(there, decoded), (gone, self._keys.decode(keys))], {})

    def _decoded(self, events: Events) -> Decoded:
        if events.typed_rows:
            return self._decoder_of_rows.decode(events.payloads_for(self._columns))
        if self._rules.transforms or self._rules.coerces:
            return self._transforming.decode(events)
        return self._decoder.decode(events.payloads)

    def _with_texts(self, events: Events) -> pa.RecordBatch:
        """The columns, those as text that the table has as text.

        A column that is `json` has values as JSON writes them, and as text those that no other type holds.
        """
        assert events.columns is not None
        columns = events.columns
        for field in self._columns if events.texts else ():
            at = columns.schema.get_field_index(field.name)
            if field.name in self._rules.converts:
                # As the statement has cast it, which is not always the text of the older type.
                continue
            if at < 0 or field.name not in events.texts or pa.types.is_string(columns.column(at).type):
                continue
            if pa.types.is_string(field.type):
                columns = columns.set_column(at, field.name, events.texts[field.name])
            elif field.type == JSON and field.name in events.unfit:
                unfit = events.unfit[field.name]
                values, _ = as_json(columns.column(at), JSON)
                columns = columns.set_column(
                    at, field.name, pc.if_else(pa.array(unfit.where), unfit.texts, values)
                )
        return columns

    def _unfit(self, events: Events, columns: pa.Schema) -> tuple[Misfits, dict[int, Rescued]]:
        """Values that no column holds are refused or rescued, by the rules for values of another type."""
        misfits: Misfits = {}
        rescued: dict[int, Rescued] = {}
        for name, unfit in events.unfit.items():
            index = self._columns.get_field_index(name)
            known = index >= 0
            rule = self._rules.type_change if known else self._rules.new_column
            if name in self._rules.dropped or rule == "ignore":
                continue
            column = self._columns.field(index) if known else columns.field(name)
            if known and name in events.texts and (column.type == JSON or pa.types.is_string(column.type)):
                continue
            for at in np.flatnonzero(unfit.where).tolist():
                text = unfit.texts[at].as_py()
                if rule == "rescue" and column.nullable:
                    rescued.setdefault(at, {})[name] = quoted(text)
                elif at not in misfits:
                    message = f"expected {type_text(column.type)}, got {shown(text)}, which it cannot hold"
                    misfits[at] = Misfit("out_of_range", message).within(name)
        return misfits, rescued

    def _converted(self, columns: pa.RecordBatch, misfits: Misfits) -> pa.RecordBatch:
        """The columns with values of an older type in that of the table; notes those that do not fit."""
        for name in self._rules.converts & {*columns.schema.names} & {*self._columns.names}:
            declared, values = self._columns.field(name), columns.column(name)
            if holds_all(declared.type, values.type):
                continue
            converted, lost = Retyper(declared).take(values)
            for at in lost:
                text = f"expected {type_text(declared.type)}, got {shown(json_text(values, at))}"
                misfits.setdefault(at, Misfit("wrong_type", text).within(name))
            columns = columns.set_column(columns.schema.get_field_index(name), name, converted)
        return columns

    @cached_property
    def _decoder(self) -> Decoder:
        return self._format.decoder(self._columns, self._rules)

    @cached_property
    def _decoder_of_rows(self) -> Decoder:
        """What takes a value of any type for text: the source has written it in its own type."""
        columns = [
            field.with_type(JSON) if pa.types.is_string(field.type) else field for field in self._columns
        ]
        return self._format.decoder(pa.schema(columns), self._rules)

    @cached_property
    def _transforming(self) -> TransformingDecoder:
        return TransformingDecoder(self._format, self._columns, self._rules)

    @cached_property
    def _fitter(self) -> Fitter:
        return Fitter(self._columns, self._rules)


def key_column(source: Source, changes: ChangePlan | None, rename: Mapping[str, str]) -> str | None:
    """Whether an event without a payload is a change of a table, which its key tells.

    None where it is not. Else the name that the column of the key has in the events, where the key is one
    value; empty where the key names its columns.
    """
    if source.key_format is None or changes is None or not changes.tombstones:
        return None
    one_value = source.key_format.type in (*ONE_VALUE, "json") and len(changes.keys) == 1
    if not one_value:
        return ""
    return {new: old for old, new in rename.items()}.get(changes.keys[0], changes.keys[0])


def payloads_of(events: Events, indexes: Sequence[int]) -> list[bytes | None]:
    """What dead letters keep of events: their bytes, or their columns as the text of a JSON object."""
    if events.refused:
        return [None] * len(indexes)
    if events.columns is None:
        return [events.payloads[index] for index in indexes]
    return [*_json_of(events, events.columns, indexes)]


def origin_of(events: Events, indexes: Sequence[int]) -> pa.RecordBatch:
    """Where dead letters say that events came from; of a change of a row, with the row's key.

    Only the key says to a replay by which columns the change names its row: those of the time of the change,
    where the source has another key by now. An event that was published without them has no key. The headers
    are the texts of values that JSON writes otherwise than the source, for a column that is text by then.
    """
    origin, columns = events.origin(indexes), events.columns
    if columns is None:
        return origin
    taken, names = pa.array(indexes, pa.int64()), events.former_keys or events.key_columns
    if events.texts:
        origin = _with(origin, "headers", _headers(columns.take(taken), events.texts, taken))
    if not names or not set(names) <= set(columns.schema.names):
        return origin
    keys = _json_of(events, columns.select(list(names)), indexes)
    return _with(origin, "key", pa.array(keys, pa.binary()))


def _with(origin: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    return origin.set_column(origin.schema.get_field_index(name), origin.schema.field(name), values)


def _headers(rows: pa.RecordBatch, texts: Mapping[str, pa.StringArray], taken: pa.Array) -> pa.Array:
    """For each row the texts of its values in columns whose texts JSON does not have."""
    kind, count = ORIGIN.field("headers").type, len(rows)
    given = {name: texts[name].take(taken) for name in rows.schema.names if name in texts}
    given = {name: one for name, one in given.items() if not _has_text(rows.column(name), one)}
    if not given or not count:
        return pa.nulls(count, kind)
    valid = np.stack([rows.column(name).is_valid().to_numpy(zero_copy_only=False) for name in given], axis=1)
    ends = np.concatenate([[0], valid.sum(axis=1).cumsum()]).astype(np.int32)
    row, column = np.nonzero(valid)
    values = pa.concat_arrays([one.cast(pa.binary()) for one in given.values()])
    keys = pa.array(list(given), pa.string()).take(pa.array(column))
    pairs = [keys, values.take(pa.array(column * count + row))]
    structs = pa.StructArray.from_arrays(pairs, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(ends), structs, type=kind)


def _has_text(values: pa.Array, texts: pa.StringArray) -> bool:
    """Whether JSON writes the values of a column with the same text."""
    kind = values.type
    if pa.types.is_decimal(kind):
        return bool(values.cast(pa.string()).equals(texts))
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind))


def _json_of(events: Events, columns: pa.RecordBatch, indexes: Sequence[int]) -> list[bytes]:
    """Some of the columns of events, as the text of a JSON object for each event."""
    texts = json_texts(columns.to_struct_array().take(pa.array(indexes, pa.int64())))
    if events.unfit:
        pairs = zip(indexes, texts, strict=True)
        texts = [_with_texts(events, columns, index) or text for index, text in pairs]
    return [text.encode() for text in texts]


def _with_texts(events: Events, columns: pa.RecordBatch, index: int) -> str | None:
    """An event that has values which no column holds, with their texts; None if it has none."""
    row, own = columns.slice(index, 1), {*columns.schema.names}
    names = [name for name, unfit in events.unfit.items() if name in own and unfit.where[index]]
    for name in names:
        text = events.unfit[name].texts.slice(index, 1)
        row = row.set_column(row.schema.get_field_index(name), name, text)
    return json_texts(row.to_struct_array())[0] if names else None
