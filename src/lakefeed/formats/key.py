"""Keys of events: what an event without a payload says, as the tombstones of a compacted topic.

A key names columns, as a payload in JSON, Avro or Protobuf does, or is one value, for a table whose key is
one column. Of all other columns it says nothing: they are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa

from lakefeed.formats import Decoded, Decoder, Format, Rules
from lakefeed.formats.csv.columns import json_value
from lakefeed.formats.fit.json_text import exact_json
from lakefeed.formats.joining import joined
from lakefeed.formats.json.format import JsonFormat
from lakefeed.formats.json.parser import parse_any
from lakefeed.formats.refusal import Misfit, Misfits, Number
from lakefeed.pipeline.options.event_key import ONE_VALUE
from lakefeed.pipeline.options.names import Names

_RULES = Rules(new_column="ignore")


class KeyDecoder(Decoder):
    """Decodes keys into the columns of a table.

    `column` is that of a key which is one value. While a table has no columns, nothing can be deleted from
    it, and keys are skipped.
    """

    def __init__(self, format: Format, columns: pa.Schema, column: str = "", names: Names = "strict") -> None:
        self._format, self._columns, self._column = format, columns, column
        self._values: Decoder | None = None
        if format.type in ONE_VALUE:
            made = pa.schema([("data", pa.string()), ("value", pa.int64())])
            self._values = format.decoder(pa.schema([made.field(0 if format.type == "text" else 1)]), _RULES)
        is_json = format.type == "json" or self._values is not None
        self._rows = (JsonFormat() if is_json else format).decoder(columns, replace(_RULES, names=names))

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every key becomes a row or a refusal, which says that it is about the key."""
        if not len(self._columns):
            none = pa.RecordBatch.from_struct_array(pa.array([], pa.struct([])))
            return Decoded(none, skipped=list(range(len(payloads))))
        indexes = [index for index, key in enumerate(payloads) if key is not None]
        refused = {index: _no_key() for index, key in enumerate(payloads) if key is None}
        part = self._decoded([key for key in payloads if key is not None])
        told = [replace(one, error=f"key: {one.error}") for one in part.refused]
        return joined(len(payloads), [(indexes, replace(part, refused=told))], refused)

    def _decoded(self, keys: list[bytes]) -> Decoded:
        if self._values is not None:
            return self._of_values(self._values.decode(keys), len(keys))
        if self._format.type == "json":
            keys = [self._object(key) for key in keys]
        return self._rows.decode(keys)

    def _of_values(self, found: Decoded, count: int) -> Decoded:
        """The rows of keys that are one value each: by the rules of JSON, as everywhere."""
        refused: Misfits = {one.index: Misfit(one.code, one.error) for one in found.refused}
        if self._column not in self._columns.names:
            message = f"is one value, and the events have no column '{self._column}' that it could be"
            refused |= {index: Misfit("wrong_type", message) for index in range(count)}
            return joined(count, [([], self._rows.decode([]))], refused)
        indexes = [index for index in range(count) if index not in refused]
        kind = self._columns.field(self._column).type
        values = found.rows.column(0).to_pylist()
        texts = [_member(self._column, _text(json_value(str(value), kind))) for value in values]
        return joined(count, [(indexes, self._rows.decode(texts))], refused)

    def _object(self, key: bytes) -> bytes:
        """A key in JSON as an object; what is none is left for the decoder to refuse."""
        if key.lstrip()[:1] != b"{":
            return _member(self._column, key) if self._column and _is_json(key) else key
        inner = _of_connect(key) if b'"payload"' in key else None
        if inner is None:
            return key
        return inner if inner[:1] == b"{" or not self._column else _member(self._column, inner)


@dataclass(frozen=True)
class KeyNames:
    """The names of the columns in a key, by the first of some formats that reads it. Picklable."""

    formats: tuple[Format, ...]

    def __call__(self, key: bytes) -> tuple[str, ...]:
        """No names where the key has none."""
        for format in self.formats:
            text = _of_connect(key) if format.type == "json" else None
            unknown = format.decoder(pa.schema([])).decode([key if text is None else text]).unknown
            if unknown is not None and format.type not in ONE_VALUE:
                return tuple(unknown.names)
        return ()


def _of_connect(key: bytes) -> bytes | None:
    """What Kafka Connect puts beside the schema of a key; None of any other key."""
    try:
        value = parse_any(key)
    except Misfit:
        return None
    is_connects = isinstance(value, dict) and value.keys() == {"schema", "payload"}
    return exact_json(value["payload"]).encode() if is_connects else None


def _is_json(key: bytes) -> bool:
    try:
        orjson.loads(key)
    except orjson.JSONDecodeError:
        return False
    return True


def _member(name: str, value: bytes) -> bytes:
    return b"{%b:%b}" % (orjson.dumps(name), value)


def _text(value: object) -> bytes:
    return value.encode() if isinstance(value, Number) else orjson.dumps(value)


def _no_key() -> Misfit:
    return Misfit("null_payload", "the event has neither a payload nor a key")
