"""Events become rows of a table: payloads by the format of their source, columns as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.events import Events, SomeEvents
from lakefeed.formats import Decoded, Decoder, Format, Rules
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.fit.json_text import json_texts, quoted
from lakefeed.formats.fit.rescue import Rescued
from lakefeed.formats.joining import joined
from lakefeed.formats.key import KeyDecoder
from lakefeed.formats.refusal import Misfit, Misfits, shown
from lakefeed.formats.transform.decoder import TransformingDecoder
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
            return self._fitter.fit(events.columns.to_struct_array(), misfits, rescued=rescued)
        if self._keys is None or None not in events.payloads:
            return self._decoded(events)
        payloads = events.payloads
        gone = [at for at, payload in enumerate(payloads) if payload is None]
        there = [at for at, payload in enumerate(payloads) if payload is not None]
        keys = events.origin(gone).column("key").to_pylist()
        decoded = self._decoded(SomeEvents(events, there))
        return joined(len(payloads), [(there, decoded), (gone, self._keys.decode(keys))], {})

    def _decoded(self, events: Events) -> Decoded:
        if self._rules.transforms or self._rules.coerces:
            return self._transforming.decode(events)
        return self._decoder.decode(events.payloads)

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
            for at in np.flatnonzero(unfit.where).tolist():
                text = unfit.texts[at].as_py()
                if rule == "rescue" and column.nullable:
                    rescued.setdefault(at, {})[name] = quoted(text)
                elif at not in misfits:
                    message = f"expected {type_text(column.type)}, got {shown(text)}, which it cannot hold"
                    misfits[at] = Misfit("out_of_range", message).within(name)
        return misfits, rescued

    @cached_property
    def _decoder(self) -> Decoder:
        return self._format.decoder(self._columns, self._rules)

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
    chosen = events.columns.to_struct_array().take(pa.array(indexes, pa.int64()))
    texts = json_texts(chosen)
    if events.unfit:
        texts = [_with_texts(events, index) or text for index, text in zip(indexes, texts, strict=True)]
    return [text.encode() for text in texts]


def origin_of(events: Events, indexes: Sequence[int]) -> pa.RecordBatch:
    """Where dead letters say that events came from; of a change of a row, with the row's key.

    A replay has nothing else that tells by which columns the change names its row. An event from before a
    column of the key was renamed, or one that was published without it, has no key.
    """
    origin = events.origin(indexes)
    if events.columns is None or not events.key_columns:
        return origin
    if not set(events.key_columns) <= set(events.columns.schema.names):
        return origin
    rows = events.columns.select(list(events.key_columns)).take(pa.array(indexes, pa.int64()))
    keys = pa.array([text.encode() for text in json_texts(rows.to_struct_array())], pa.binary())
    return origin.set_column(origin.schema.get_field_index("key"), origin.schema.field("key"), keys)


def _with_texts(events: Events, index: int) -> str | None:
    """An event that has values which no column holds, with their texts; None if it has none."""
    assert events.columns is not None
    row = events.columns.slice(index, 1)
    names = [name for name, unfit in events.unfit.items() if unfit.where[index]]
    for name in names:
        text = events.unfit[name].texts.slice(index, 1)
        row = row.set_column(row.schema.get_field_index(name), name, text)
    return json_texts(row.to_struct_array())[0] if names else None
