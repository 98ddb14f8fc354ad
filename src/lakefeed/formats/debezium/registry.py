"""Change events whose schemas a registry holds: in Avro, or in JSON behind a frame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakefeed.formats import Decoded, Decoder, Rules
from lakefeed.formats.avro.reader import ReadRecords, Registered
from lakefeed.formats.debezium.envelope import no_envelope
from lakefeed.formats.debezium.rows import about_no_row, unwrapped
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.joining import joined
from lakefeed.formats.registry.client import RegisteredSchema, UnknownSchema, client_of
from lakefeed.formats.registry.framing import HEADER, framed
from lakefeed.pipeline.options.registry import Registry

# Kafka Connect writes what a value means under a name of its own; Avro has these names for it.
_LOGICAL = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
    "io.debezium.time.NanoTimestamp": "timestamp-nanos",
}


class FramedDecoder(Decoder):
    """Decodes change events that each name their schema; `plain` decodes the content of those in JSON."""

    def __init__(
        self, plain: Decoder, registry: Registry, schema: pa.Schema, rules: Rules, unwrap: bool
    ) -> None:
        self._plain = plain
        self._registry = registry
        self._avro = _Connected(registry)
        self._fitter = Fitter(schema, rules)
        self._unwrap, self._changes = unwrap, rules.changes

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """A payload becomes a row or a refusal, or is skipped. Raises RegistryError."""
        skipped = [index for index, payload in enumerate(payloads) if payload is None]
        present = [index for index, payload in enumerate(payloads) if payload is not None]
        in_json = self._in_json(payloads, present)
        contents = [(payloads[index] or b"")[HEADER:] for index in in_json]
        parts: list[tuple[Sequence[int], Decoded]] = [(in_json, self._plain.decode(contents))]
        others = sorted({*present} - {*in_json})
        made, misfits = self._avro.read([payloads[index] for index in others])
        for each in made:
            part = _about_rows(each, about_no_row(changes=self._changes)) if self._unwrap else each
            skipped += [others[at] for at in {*each.indexes} - {*part.indexes}]
            parts.append(([others[at] for at in part.indexes], self._fitted(part)))
        refused = {others[at]: misfit for at, misfit in misfits.items()}
        return joined(len(payloads), parts if in_json or not made else parts[1:], refused, skipped)

    def _in_json(self, payloads: Sequence[bytes | None], indexes: Sequence[int]) -> list[int]:
        """The payloads whose schema is one of JSON; whether others are of use, the reader of Avro decides."""
        found: list[int] = []
        for number, those in framed(payloads, indexes)[0].items():
            try:
                if client_of(self._registry).schema(number).kind == "JSON":
                    found += those
            except UnknownSchema:
                continue
        return sorted(found)

    def _fitted(self, part: ReadRecords) -> Decoded:
        events, misfits = part.values, dict(part.misfits)
        if events.type.get_field_index("op") < 0:
            misfits = {index: no_envelope() for index in range(len(events))}
        elif self._unwrap:
            events, without = unwrapped(events, changes=self._changes)
            misfits = without | misfits
        return self._fitter.fit(events, misfits)


def _about_rows(part: ReadRecords, others: frozenset[str]) -> ReadRecords:
    """The events but for those that are about no row."""
    if part.values.type.get_field_index("op") < 0:
        return part
    op = part.values.field("op").to_pylist()
    kept = [index for index in range(len(part.indexes)) if op[index] not in others]
    if len(kept) == len(op):
        return part
    misfits = {at: part.misfits[index] for at, index in enumerate(kept) if index in part.misfits}
    return ReadRecords(
        [part.indexes[index] for index in kept], part.values.take(pa.array(kept, pa.int64())), misfits
    )


@dataclass(frozen=True)
class _Connected(Registered):
    """Confluent's wire format, with schemas that Kafka Connect has made."""

    def described(self, schema: RegisteredSchema) -> RegisteredSchema:
        """The schema with Avro's own names for what Debezium's stand for."""
        try:
            return replace(schema, text=json.dumps(_with_logical(json.loads(schema.text))))
        except (ValueError, RecursionError):
            # The reader of Avro says what is wrong with it.
            return schema


def _with_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _with_logical(value) for key, value in schema.items()}
    logical = _LOGICAL.get(str(schema.get("connect.name")))
    return {"logicalType": logical, **found} if logical else found
