"""Events become rows of a table: payloads by the format of their source, columns as they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa

from lakefeed.events import Events
from lakefeed.formats import Decoded, Decoder, Format, Rules
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.fit.json_text import json_texts


class EventDecoder:
    """Decodes events against one schema. A source of columns needs no format: its columns are only fitted."""

    def __init__(self, format: Format, columns: pa.Schema, rules: Rules) -> None:
        self._format, self._columns, self._rules = format, columns, rules

    def decode(self, events: Events) -> Decoded:
        """Every event becomes a row or a refusal or is skipped, never two of them."""
        if events.columns is None:
            return self._decoder.decode(events.payloads)
        return self._fitter.fit(events.columns.to_struct_array())

    @cached_property
    def _decoder(self) -> Decoder:
        return self._format.decoder(self._columns, self._rules)

    @cached_property
    def _fitter(self) -> Fitter:
        return Fitter(self._columns, self._rules)


def payloads_of(events: Events, indexes: Sequence[int]) -> list[bytes | None]:
    """What dead letters keep of events: their bytes, or their columns as the text of a JSON object."""
    if events.columns is None:
        return [events.payloads[index] for index in indexes]
    chosen = events.columns.to_struct_array().take(pa.array(indexes, pa.int64()))
    return [text.encode() for text in json_texts(chosen)]
