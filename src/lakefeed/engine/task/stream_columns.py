"""Columns that events have by the stream that they come from, such as the folders of a file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakefeed.columns.widening import merged_proposals
from lakefeed.engine.task.decoding import EventDecoder
from lakefeed.events import Events
from lakefeed.formats import Decoded, Format, Rules
from lakefeed.formats.csv.format import CONVERSIONS
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.key import KeyDecoder
from lakefeed.sources import Source


class StreamColumnsDecoder(EventDecoder):
    """Decodes events of a source whose streams have columns: text, which is converted as that of CSV is."""

    def __init__(
        self, source: Source, format: Format, columns: pa.Schema, rules: Rules, keys: KeyDecoder | None
    ) -> None:
        super().__init__(format, columns, rules, keys)
        self._source = source
        self._integers = {field.name.lower() for field in columns if pa.types.is_integer(field.type)}
        self._inner: dict[tuple[str, ...], EventDecoder] = {}

    def decode(self, events: Events) -> Decoded:
        """Every event becomes a row or a refusal or is skipped, never two of them."""
        if events.refused:
            return super().decode(events)
        streams = events.origin().column("stream").dictionary_encode()
        found = [self._source.stream_columns(stream or "") for stream in streams.dictionary.to_pylist()]
        names = tuple(dict.fromkeys(name for one in found for name in one))
        if not names:
            return super().decode(events)
        decoded = self._without(names).decode(events)
        gone = {one.index for one in decoded.refused} | set(decoded.skipped)
        kept = np.setdiff1d(np.arange(len(events)), np.array(sorted(gone), np.int64))
        indexes = streams.indices.take(pa.array(kept))
        texts = [
            pa.array([self._text(name, one.get(name)) for one in found], pa.string()).take(indexes)
            for name in names
        ]
        made = pa.StructArray.from_arrays(texts, names=list(names))
        return self._both(decoded, self._fitted(made, names), kept)

    def _text(self, name: str, value: str | None) -> str | None:
        """The value of a stream as CSV writes it: numbers in the names of folders may begin with zeros."""
        is_number = value is not None and value.isascii() and value.isdigit()
        return value.lstrip("0") or "0" if value and is_number and name.lower() in self._integers else value

    def _without(self, names: tuple[str, ...]) -> EventDecoder:
        """What decodes the other columns; what an event itself says of these does not count."""
        if names not in self._inner:
            columns = pa.schema([field for field in self._columns if field.name not in names])
            rules = replace(self._rules, dropped=self._rules.dropped | set(names))
            self._inner[names] = EventDecoder(self._format, columns, rules, self._keys)
        return self._inner[names]

    def _fitted(self, made: pa.StructArray, names: tuple[str, ...]) -> Decoded:
        columns = pa.schema([field for field in self._columns if field.name in names])
        # There is nothing in an event that could be rescued.
        ignored = self._rules.new_column == "rescue"
        rules = replace(
            self._rules,
            type_change="dead_letter",
            new_column="ignore" if ignored else self._rules.new_column,
        )
        return Fitter(columns, rules, CONVERSIONS).fit(made)

    def _both(
        self, decoded: Decoded, fitted: Decoded, kept: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> Decoded:
        rows, rescued = decoded.rows, decoded.rescued
        if fitted.refused:
            good = np.ones(len(kept), np.bool_)
            good[[one.index for one in fitted.refused]] = False
            rows = rows.filter(pa.array(good))
            rescued = None if rescued is None else rescued.filter(pa.array(good))
        columns = [
            (fitted.rows if field.name in fitted.rows.schema.names else rows).column(field.name)
            for field in self._columns
        ]
        refused = [*decoded.refused, *(replace(one, index=int(kept[one.index])) for one in fitted.refused)]
        return Decoded(
            pa.RecordBatch.from_arrays(columns, names=self._columns.names) if columns else rows,
            sorted(refused, key=lambda one: one.index),
            merged_proposals(decoded.unknown, fitted.unknown),
            rescued,
            decoded.skipped,
        )


def decoder_of(
    source: Source, format: Format, columns: pa.Schema, rules: Rules, key: str | None
) -> EventDecoder:
    """What decodes the events of a source for one table; `key` is of `key_column`."""
    keys: KeyDecoder | None = None
    if key is not None:
        assert isinstance(source.key_format, Format)
        keys = KeyDecoder(source.key_format, columns, key, rules.names)
    if source.has_stream_columns:
        return StreamColumnsDecoder(source, format, columns, rules, keys)
    return EventDecoder(format, columns, rules, keys)
