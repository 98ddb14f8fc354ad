"""Tests of a pipeline: events that are sent through it, and what must be in its tables then."""

from __future__ import annotations

import base64 as base_64
import binascii
import json
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, PrivateAttr, WithJsonSchema, model_validator

from lakefeed.pipeline.loading.document import WrittenNumber
from lakefeed.pipeline.options.client_options import OptionText
from lakefeed.pipeline.section import Section, UtcTime
from lakefeed.text import one_of, shown

_PAYLOADS = ("json", "text", "base64", "hex")


def json_text(value: Any) -> str:
    """A value of the file as JSON; numbers keep the digits that they are written with."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{json_text(str(key))}: {json_text(item)}" for key, item in value.items()) + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(json_text, value)) + "]"
    if isinstance(value, WrittenNumber | Decimal):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except TypeError:
        raise ValueError(f"JSON has no {type(value).__name__}; write it as text") from None


def as_bytes(value: Any) -> bytes:
    """The bytes of a text, or of one value under `text`, `base64` or `hex`; ValueError for all else."""
    if isinstance(value, bytes):
        return value
    kind, text = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("text", value)
    if not isinstance(text, str) or kind not in _PAYLOADS[1:]:
        expected = one_of(f"{{{each}: ...}}" for each in _PAYLOADS[2:])
        raise ValueError(f"expected text, {expected}, got {shown(value)}")
    try:
        if kind == "hex":
            return bytes.fromhex(text)
        return base_64.b64decode(text, validate=True) if kind == "base64" else text.encode()
    except (ValueError, binascii.Error):
        raise ValueError(f"expected {kind}, got {shown(text)}") from None


Bytes = Annotated[
    bytes,
    BeforeValidator(as_bytes),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object", "maxProperties": 1}]}),
]
"""Bytes in the file: a text, or `{hex: 00ff}` or `{base64: AP8=}`."""

JsonValue = Annotated[Any, WithJsonSchema({"format": "lakefeed-any value"})]


class Sample(Section):
    """An event that a test sends. One of `json`, `text`, `base64` and `hex` is its payload.

    Without any of them it has no payload, as a Kafka tombstone.
    """

    json_: JsonValue = Field(
        default=None,
        validation_alias="json",
        serialization_alias="json",
        description="The payload as a value, which is sent as JSON.",
        examples=[{"event_id": 1}],
    )
    text: OptionText | None = Field(default=None, description="The payload as text, which is sent in UTF-8.")
    base64: OptionText | None = Field(default=None, description="The bytes of the payload in base64.")
    hex: OptionText | None = Field(
        default=None, description="The bytes of the payload as hexadecimal digits."
    )
    key: Bytes | None = Field(
        default=None,
        description="The event's key: text, `{hex: ...}` or `{base64: ...}`.",
        examples=["user-7"],
    )
    headers: dict[str, Bytes | None] | None = Field(
        default=None,
        description="The event's headers, each in the same form as `key`.",
        examples=[{"trace": "a1"}],
    )
    timestamp: UtcTime | None = Field(
        default=None,
        description="When the event happened, in UTC unless it names a zone.",
        examples=["2026-11-15T10:00:00Z"],
    )
    topic: str | None = Field(
        default=None, description="The event's topic. Left out: the first of the source's `topics`."
    )
    partition: int = Field(
        default=0, ge=0, lt=2**31, description="The event's partition. Offsets count from 0 in each."
    )

    _payload: bytes | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _one_payload(self) -> Self:
        given = [kind for kind in _PAYLOADS[1:] if getattr(self, kind) is not None]
        given += ["json"] if "json_" in self.model_fields_set else []
        if len(given) > 1:
            raise ValueError(f"an event has one payload: give {one_of(given)}")
        if given == ["json"]:
            self._payload = json_text(self.json_).encode()
        elif given:
            self._payload = as_bytes({given[0]: getattr(self, given[0])})
        return self

    @property
    def payload(self) -> bytes | None:
        """The bytes that the source would have read."""
        return self._payload


class ExpectedLetter(Section):
    """A record that must be refused. Only the keys that you give are compared."""

    code: str | None = Field(
        default=None,
        description="The code: as the page of the format lists it, the name of the rule of `expect`, Spark's "
        "error class, or the exception that `python` raised.",
        examples=["bad_json"],
    )
    stage: str | None = Field(default=None, description="Where it was refused.", examples=["decode"])
    error: str | None = Field(
        default=None, description="A part of the error's text.", examples=["expected decimal(10,2)"]
    )

    @model_validator(mode="after")
    def _something_is_compared(self) -> Self:
        if self.code is None and self.stage is None and self.error is None:
            raise ValueError("give code, stage or error")
        return self


class ExpectedTable(Section):
    """The expected content of a table: these rows and dead letters, in any order, and no others."""

    rows: tuple[dict[str, JsonValue], ...] = Field(
        default=(),
        description="The rows, with the columns to compare; other columns are not compared.",
        examples=[[{"event_id": 1, "price": 9.99}]],
    )
    dead_letters: tuple[ExpectedLetter, ...] = Field(
        default=(), description="The records that must be refused for this table."
    )
    filtered: int | None = Field(
        default=None,
        ge=0,
        description="How many rows `where`, or a rule with `otherwise: drop`, must leave out. Left out: "
        "not compared.",
        examples=[1],
    )


class Case(Section):
    """One test: events, and the expected content of the tables that it names."""

    events: dict[str, tuple[Sample, ...]] = Field(
        min_length=1,
        description="The events, by source. A source that is not named has none.",
        examples=[{"clicks": [{"json": {"event_id": 1}}]}],
    )
    tables: dict[str, ExpectedTable] = Field(
        min_length=1,
        description="The expected content of the tables, by name. A table that is not named is not compared.",
        examples=[{"clicks": {"rows": [{"event_id": 1}]}}],
    )
