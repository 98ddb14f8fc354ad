"""The `event` format: any JSON, kept as text, with its type, its time and its stream in columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import orjson
import pyarrow as pa

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.formats import Decoder, Format, Rules
from lakefeed.formats.fit.type_rules import INT64, is_epoch
from lakefeed.formats.fit.values import converter
from lakefeed.formats.fixed import Columns, FixedDecoder, UnfitValue
from lakefeed.formats.json.parser import doubled_key, loaded
from lakefeed.formats.refusal import VALUES, Misfit, Misfits, Number, codes, shown, utf8_text

CODES = codes("empty_payload", "not_utf8", "bad_json", "duplicate_key", "too_deep", *VALUES)
"""Every code of a refused payload and what it means, in the order of the checks."""

_KEYS = {"event_type": pa.string(), "timestamp": TIMESTAMP, "stream": pa.string()}
_QUOTED_KEYS = [f'"{key}"'.encode() for key in _KEYS]
_MADE = pa.schema([("data", pa.string()), *_KEYS.items()])
# An ASCII letter of a key may be hidden in such an escape.
_ESCAPED_LETTER = b"\\u00"


class EventFormat(Format):
    """JSON of any shape, as text in `data`, with `event_type`, `timestamp` and `stream` from its own keys."""

    type: Literal["event"] = "event"

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> Decoder:
        """A decoder of payloads that are JSON as they are."""
        return FixedDecoder(schema, rules, _MADE, _EventReader(schema).read)


class _EventReader:
    """Reads JSON of which only three keys of the outermost object matter; a missing one is null."""

    def __init__(self, schema: pa.Schema) -> None:
        declared = {field.name: field.type for field in schema}
        self._keys = [_Key(name, declared.get(name, made)) for name, made in _KEYS.items()]

    def read(self, payloads: Sequence[bytes]) -> Columns:
        """Parse each payload once, and keep its text."""
        data: list[bytes | None] = []
        values: list[list[Any]] = []
        misfits: Misfits = {}
        changes: dict[int, list[UnfitValue]] = {}
        for index, payload in enumerate(payloads):
            try:
                found = _outermost(payload)
                data.append(payload)
            except Misfit as misfit:
                misfits[index] = misfit
                found = {}
                data.append(None)
            row = [key.read(found.get(key.name)) for key in self._keys]
            if found_changes := [each for each in row if isinstance(each, UnfitValue)]:
                changes[index] = found_changes
            values.append([None if isinstance(each, UnfitValue) else each for each in row])
        columns = {"data": pa.array(data, pa.string())}
        for at, key in enumerate(self._keys):
            columns[key.name] = pa.array([row[at] for row in values], key.read_as)
        return Columns(columns, misfits, changes)


class _Key:
    """A key that becomes a column: text, or whole numbers for a `timestamp(unit)`."""

    def __init__(self, name: str, declared: pa.DataType) -> None:
        self.name = name
        self._kind: type[Any] = int if is_epoch(declared) else str
        self.read_as = pa.int64() if self._kind is int else pa.string()
        self._convert = converter(pa.field(name, declared))

    def read(self, value: Any) -> Any:
        """The value for the column, or a change if it is of no kind that the column is read as."""
        fits = type(value) is self._kind and (self._kind is str or INT64[0] <= value <= INT64[1])
        if value is None or fits:
            return value
        parsed = Number(value) if type(value) in (int, float) else value
        try:
            self._convert(parsed)
            if self._kind is int:
                return int(parsed)
            raise Misfit("wrong_type", f"expected text, got {shown(parsed)}")
        except Misfit as misfit:
            text = parsed if isinstance(parsed, Number) else orjson.dumps(value).decode()
            return UnfitValue(self.name, misfit.within(self.name), text)


def _outermost(payload: bytes) -> dict[str, Any]:
    """The outermost object, or an empty one if the payload is another kind of JSON. Raises Misfit."""
    value = loaded(payload)
    if not isinstance(value, dict):
        return {}
    if _ESCAPED_LETTER in payload or any(payload.count(key) > 1 for key in _QUOTED_KEYS):
        _refuse_doubled(payload)
    return value


def _refuse_doubled(payload: bytes) -> None:
    """Raise Misfit if a key that matters is there twice."""
    keys: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        # The outermost object comes last.
        keys[:] = [key for key, _ in pairs]

    json.loads(utf8_text(payload), object_pairs_hook=note, parse_int=str)
    for key in _KEYS:
        if keys.count(key) > 1:
            raise doubled_key(key)
