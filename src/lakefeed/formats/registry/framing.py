"""Confluent's wire format: a zero byte, the number of the schema in four bytes, then the content."""

from __future__ import annotations

from collections.abc import Sequence

from lakefeed.formats import Decoded, Decoder
from lakefeed.formats.joining import joined
from lakefeed.formats.refusal import Misfit, Misfits
from lakefeed.formats.registry.client import RegisteredSchema, UnknownSchema, client_of
from lakefeed.pipeline.options.registry import Registry

HEADER = 5
"""How many bytes stand before the content."""


def by_header(
    payloads: Sequence[bytes | None], indexes: Sequence[int], length: int
) -> dict[bytes, list[int]]:
    """The indexes of payloads by the bytes that they begin with; each is there, and not null."""
    found: dict[bytes, list[int]] = {}
    for index in indexes:
        found.setdefault((payloads[index] or b"")[:length], []).append(index)
    return found


def framed(payloads: Sequence[bytes | None], indexes: Sequence[int]) -> tuple[dict[int, list[int]], Misfits]:
    """The indexes of payloads by the number of their schema, and those that are not framed.

    Each is there, and not null.
    """
    by_schema: dict[int, list[int]] = {}
    misfits: Misfits = {}
    for header, found in by_header(payloads, indexes, HEADER).items():
        if len(header) == HEADER and header[0] == 0:
            by_schema[int.from_bytes(header[1:], "big")] = found
        else:
            misfits |= {index: _bad_framing(header) for index in found}
    return by_schema, misfits


def registered(registry: Registry, number: int, kind: str, form: str | None = None) -> RegisteredSchema:
    """The schema of a frame, which must be of this kind. Raises Misfit, or what the client raises."""
    try:
        found = client_of(registry).schema(number, form)
    except UnknownSchema as error:
        raise Misfit("unknown_schema", f"{error}") from None
    if found.kind != kind:
        raise Misfit("bad_schema", f"expected {kind}, but schema {number} of the registry is {found.kind}")
    return found


class UnframingDecoder(Decoder):
    """Gives what is in frames to the decoder of a format that reads it without its schema."""

    def __init__(self, plain: Decoder, registry: Registry, kind: str) -> None:
        self._plain = plain
        self._registry = registry
        self._kind = kind

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every payload becomes a row or a refusal; raises RegistryError if the registry does not answer."""
        contents, misfits = unframed(payloads, self._registry, self._kind)
        kept = [index for index in range(len(payloads)) if index not in misfits]
        part = self._plain.decode([contents[index] for index in kept])
        return joined(len(payloads), [(kept, part)], misfits)


def unframed(
    payloads: Sequence[bytes | None], registry: Registry, kind: str
) -> tuple[list[bytes | None], Misfits]:
    """What is in each frame, and those that are none, by their index. Raises RegistryError."""
    indexes = [index for index, payload in enumerate(payloads) if payload is not None]
    by_schema, misfits = framed(payloads, indexes)
    for number, those in by_schema.items():
        try:
            registered(registry, number, kind)
        except Misfit as misfit:
            misfits |= dict.fromkeys(those, misfit)
    return [None if payload is None else payload[HEADER:] for payload in payloads], misfits


def _bad_framing(header: bytes) -> Misfit:
    if not header:
        return Misfit("bad_framing", "expected a zero byte and the number of a schema, got an empty payload")
    if header[0]:
        return Misfit("bad_framing", f"expected a zero byte first, got 0x{header[0]:02x}")
    return Misfit("bad_framing", f"expected {HEADER} bytes before the content, got {len(header)} in all")
