"""The `debezium` format: one change of a database row per payload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from lakefeed.columns.change_columns import DEBEZIUM, ChangeColumns
from lakefeed.formats import Decoded, Decoder, Format, Rules
from lakefeed.formats.avro.format import CODES as AVRO_CODES
from lakefeed.formats.debezium.envelope import Envelope, Opener
from lakefeed.formats.debezium.registry import FramedDecoder
from lakefeed.formats.debezium.rows import about_no_row, row_text, unwrapped
from lakefeed.formats.debezium.schema import EventSchema, Meaning, NotUnderstood
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.joining import joined
from lakefeed.formats.json.decoder import JsonDecoder
from lakefeed.formats.json.format import CODES as JSON_CODES
from lakefeed.formats.refusal import Misfit, Misfits, codes
from lakefeed.pipeline.options.registry import RegistryField

CODES = codes("not_an_envelope", "no_row", *JSON_CODES, *AVRO_CODES)
"""Every code of a refused payload and what it means, in the order of the checks."""

_MOST_SCHEMAS = 100


class DebeziumFormat(Format):
    """Change events of Debezium, one per payload; tombstones are skipped."""

    type: Literal["debezium"] = "debezium"
    unwrap: bool = Field(
        default=False,
        description="Whether the columns are those of the changed row, and `__op`, `__deleted` and "
        "`__ts_ms`, instead of `before`, `after`, `op`, `source` and so on.",
    )

    registry: RegistryField | None = Field(
        default=None,
        description="The schema registry of events in Confluent's wire format, Avro or JSON: its URL, or a "
        "mapping. Left out: events are plain JSON.",
        examples=["http://localhost:8081"],
    )

    @property
    def change_columns(self) -> ChangeColumns:
        """An event is a change of a row."""
        return DEBEZIUM

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> Decoder:
        """A decoder of events that are JSON as they are, or in frames."""
        unwrap = self.unwrap or rules.changes
        plain = DebeziumDecoder(schema, rules, unwrap)
        if self.registry is None:
            return plain
        return FramedDecoder(plain, self.registry, schema, rules, unwrap)


class DebeziumDecoder(Decoder):
    """Decodes change events in JSON, each by the schema that comes with it, if one does."""

    def __init__(self, schema: pa.Schema, rules: Rules, unwrap: bool) -> None:
        self._schema = schema
        self._rules = rules
        self._unwrap = unwrap
        self._about_no_row = about_no_row(changes=rules.changes)
        self._opener = Opener()
        self._plain = JsonDecoder(schema, rules)
        self._schemas: dict[bytes, EventSchema | None] = {}
        self._readers: dict[tuple[bytes, int], _Typed] = {}

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """A payload becomes a row or a refusal or is skipped; which of them does not depend on the others."""
        groups: dict[_Typed | None, tuple[list[int], list[bytes]]] = {}
        refused: Misfits = {}
        skipped: list[int] = []
        for index, payload in enumerate(payloads):
            try:
                envelope = self._opener.open(payload)
                if envelope is None or (self._unwrap and envelope.event["op"] in self._about_no_row):
                    skipped.append(index)
                    continue
                reader = self._reader(envelope)
                text = envelope.text
                if self._unwrap and reader is None:
                    text = row_text(envelope, changes=self._rules.changes)
            except Misfit as misfit:
                refused[index] = misfit
                continue
            indexes, texts = groups.setdefault(reader, ([], []))
            indexes.append(index)
            texts.append(text)
        parts = [
            (indexes, (reader or self._plain).decode(texts)) for reader, (indexes, texts) in groups.items()
        ]
        return joined(len(payloads), parts or [([], self._plain.decode([]))], refused, skipped)

    def _reader(self, envelope: Envelope) -> _Typed | None:
        """The reader of events like this one; None for those that are read as if they had no schema."""
        text = envelope.schema
        if text is None:
            return None
        if text not in self._schemas:
            if len(self._schemas) >= _MOST_SCHEMAS:
                self._schemas.clear()
                self._readers.clear()
            self._schemas[text] = self._understood(text)
        schema = self._schemas[text]
        if schema is None:
            return None
        key = text, schema.writing(envelope.event)
        if key not in self._readers:
            meaning = schema.meaning(key[1])
            self._readers[key] = _Typed(meaning, self._schema, self._rules, self._unwrap)
        return self._readers[key]

    def _understood(self, text: bytes) -> EventSchema | None:
        try:
            schema = EventSchema(text)
        except NotUnderstood:
            return None
        return None if self._unwrap and not schema.has_rows else schema


class _Typed:
    """Reads events that came with the same schema."""

    def __init__(self, meaning: Meaning, schema: pa.Schema, rules: Rules, unwrap: bool) -> None:
        self._convert = meaning.convert
        self._unwrap, self._changes = unwrap, rules.changes
        self._json = JsonDecoder(pa.schema(list(meaning.read)), Rules(new_column="ignore"))
        self._fitter = Fitter(schema, rules)

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        read = self._json.decode(payloads)
        refused: Misfits = {one.index: Misfit(one.code, one.error) for one in read.refused}
        indexes = [index for index in range(len(payloads)) if index not in refused]
        return joined(len(payloads), [(indexes, self._fitted(read.rows.to_struct_array()))], refused)

    def _fitted(self, events: pa.StructArray) -> Decoded:
        misfits: Misfits = {}
        if self._convert:
            events, wrong = self._convert(events)
            message = "a number has more digits than the schema of the event allows, or is none"
            misfits = {index: Misfit("out_of_range", message) for index in np.flatnonzero(wrong).tolist()}
        if self._unwrap:
            events, without = unwrapped(events, changes=self._changes)
            misfits = without | misfits
        return self._fitter.fit(events, misfits)
