"""Messages whose schemas a registry holds: each payload says which message it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakefeed.errors import RegistryError, RegistryUnavailable
from lakefeed.formats import Decoded, Decoder, Rules
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.joining import Part, joined
from lakefeed.formats.protobuf.message import Message
from lakefeed.formats.protobuf.proto.files import BadDescriptor, Files, registered_files
from lakefeed.formats.protobuf.reader import MessageDecoder
from lakefeed.formats.refusal import Misfit, Misfits, no_payload
from lakefeed.formats.registry.client import RegisteredSchema
from lakefeed.formats.registry.framing import HEADER, framed, registered
from lakefeed.pipeline.options.registry import Registry

_KIND = "PROTOBUF"
_FIRST = (0,)
_START = HEADER + 1
_MOST_INDEXES = 32


@dataclass(frozen=True)
class Kind:
    """Which message a payload is: the number of a schema, and the indexes of the message in it."""

    schema: int
    indexes: tuple[int, ...]


_Found = dict[Kind, tuple[list[int], list[bytes]]]
"""Payloads by what they are: their indexes and their messages."""


def _kinds(payloads: Sequence[bytes | None], indexes: Sequence[int]) -> tuple[_Found, Misfits]:
    """What the frames of payloads say that they are, and those that say nothing of use; none is null."""
    by_schema, misfits = framed(payloads, indexes)
    found: _Found = {}
    for schema, own in by_schema.items():
        texts = [payloads[index] or b"" for index in own]
        # A zero stands for the first message of the schema, which most payloads are.
        first = [index for index, text in zip(own, texts, strict=True) if text[HEADER:_START] == b"\0"]
        if first:
            found[Kind(schema, _FIRST)] = (
                first,
                [text[_START:] for text in texts if text[HEADER:_START] == b"\0"],
            )
        for index, text in zip(own, texts, strict=True) if len(first) < len(own) else ():
            if text[HEADER:_START] != b"\0":
                _sort(schema, index, text, found, misfits)
    return found, misfits


def _sort(schema: int, index: int, payload: bytes, found: _Found, misfits: Misfits) -> None:
    try:
        message, start = _message_indexes(payload)
    except Misfit as misfit:
        misfits[index] = misfit
        return
    indexes, messages = found.setdefault(Kind(schema, message), ([], []))
    indexes.append(index)
    messages.append(payload[start:])


def _message_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes of the message in its schema, one for each level, and where it begins."""
    count, at = _varint(payload, HEADER)
    if not 0 < count <= _MOST_INDEXES:
        raise Misfit("bad_framing", f"byte {HEADER + 1}: expected the number of message indexes, got {count}")
    indexes = []
    for _ in range(count):
        index, at = _varint(payload, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """A number of 32 bits with its sign in the lowest one, and the byte behind it."""
    value = 0
    for nth, byte in enumerate(payload[at : at + 5]):
        value |= (byte & 127) << 7 * nth
        if byte < 128:
            return value >> 1 ^ -(value & 1), at + nth + 1
    raise Misfit("bad_framing", f"byte {at + 1}: expected a message index")


class RegistryDecoder(Decoder):
    """Decodes payloads that each say which message of a registry they are; `wanted` refuses all others."""

    def __init__(self, registry: Registry, wanted: str | None, schema: pa.Schema, rules: Rules) -> None:
        self._registry, self._wanted = registry, wanted
        self._schema, self._rules = schema, rules
        self._nothing = Fitter(schema, rules).nothing()
        self._decoders: dict[Kind, MessageDecoder] = {}

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every payload becomes a row or a refusal. Raises RegistryError if the registry does not answer."""
        refused = {index: no_payload() for index, payload in enumerate(payloads) if payload is None}
        found, misfits = _kinds(payloads, [index for index in range(len(payloads)) if index not in refused])
        refused |= misfits
        parts: list[Part] = []
        for kind, (indexes, messages) in found.items():
            try:
                parts += self._decoder(kind).read(indexes, messages)
            except Misfit as misfit:
                refused |= dict.fromkeys(indexes, misfit)
        return joined(len(payloads), parts or [([], self._nothing)], refused)

    def _decoder(self, kind: Kind) -> MessageDecoder:
        """The decoder of a kind of payload. Raises Misfit, and what the client of the registry raises."""
        if kind not in self._decoders:
            message = self._message(kind)
            if self._wanted is not None and message.name != self._wanted:
                expected = f"expected a message {self._wanted}, got {message.name}"
                raise Misfit("other_message", expected)
            self._decoders[kind] = MessageDecoder(message, self._schema, self._rules)
        return self._decoders[kind]

    def _message(self, kind: Kind) -> Message:
        name = f"schema-{kind.schema}.proto"
        try:
            files = self._files(name, kind.schema)
            found = files.names_at(name, kind.indexes)
            if len(found) > 1 and self._wanted in found:
                found = [self._wanted]
            if len(found) == 1:
                return files.message(found[0])
        except BadDescriptor as error:
            raise Misfit("bad_schema", f"schema {kind.schema}: {error}") from None
        indexes = f"[{', '.join(map(str, kind.indexes))}]"
        if not found:
            raise Misfit("bad_framing", f"schema {kind.schema} has no message at {indexes}")
        names = " or ".join(found)
        raise Misfit("bad_framing", f"the message at {indexes} is {names}: clients differ; set `message`")

    def _files(self, name: str, number: int) -> Files:
        schema = registered(self._registry, number, _KIND)
        try:
            return Files(registered_files(name, schema.text, _texts(schema)))
        except BadDescriptor as reason:
            # What the parser here does not know, such as an edition, the registry itself may have compiled.
            try:
                schema = registered(self._registry, number, _KIND, "serialized")
                return Files(registered_files(name, schema.text, _texts(schema)))
            except RegistryUnavailable:
                raise
            except (Misfit, RegistryError, BadDescriptor):
                raise reason from None


def _texts(schema: RegisteredSchema) -> dict[str, str]:
    """All files that a schema refers to, by the names that it imports them under."""
    found: dict[str, str] = {}
    for each in schema.references:
        found |= {each.name: each.schema.text, **_texts(each.schema)}
    return found
