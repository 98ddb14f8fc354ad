"""Records of Avro container files, each as a container of its own, which holds its schema as well."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import numpy as np

from lakefeed.formats.avro.container import MAGIC, SYNC, decompressor, header_map, schema_text
from lakefeed.formats.avro.schema import without_odd_decimals
from lakefeed.formats.refusal import Misfit
from lakefeed.sources.files.reading.lines import Records
from lakefeed.sources.files.reading.opening import Stream, Unreadable

_LARGEST_BLOCK = 256 * 2**20
_MOST_EMPTY = 100_000
"""Records of a block that may have no byte of their own."""
_TOGETHER = 50_000


def avro_records(stream: Stream) -> Iterator[Records]:
    """All records, each with its number, from 0. Raises Unreadable."""
    try:
        yield from _records(_Bytes(stream))
    except Misfit as misfit:
        raise Unreadable(misfit.code, str(misfit)) from None


def _records(file: _Bytes) -> Iterator[Records]:
    # Slow to import, and only for such files.
    from fastavro import parse_schema, schemaless_reader

    if file.take(len(MAGIC)) != MAGIC:
        raise Unreadable("bad_framing", "no Avro container: it does not begin with Obj and 1")
    header = header_map(file)
    mark, text = file.take(SYNC), schema_text(header)
    decompress = decompressor(header.get("avro.codec", b"null"))
    try:
        schema = parse_schema(without_odd_decimals(json.loads(text)))
    except Exception as error:
        raise Unreadable("bad_schema", f"the schema of the container: {error}") from None
    head = MAGIC + _map({"avro.schema": text.encode(), "avro.codec": b"null"}) + mark + _long(1)
    number = 0
    while not file.at_end():
        count, content = file.long("the number of records"), decompress(file.counted("a block"))
        if file.take(SYNC) != mark:
            raise Unreadable("bad_avro", "the mark after a block is not that of the header")
        if not 0 <= count <= len(content) + _MOST_EMPTY:
            raise Unreadable(
                "bad_avro", f"a block of {len(content):,} bytes says that it has {count:,} records"
            )
        payloads: list[bytes] = []
        inside, start = io.BytesIO(content), 0
        for _ in range(count):
            try:
                schemaless_reader(inside, schema, None)
            except Exception as error:
                raise Unreadable("bad_avro", f"record {number + len(payloads):,}: {error!r}") from None
            end = inside.tell()
            payloads.append(head + _long(end - start) + content[start:end] + mark)
            start = end
            if len(payloads) == _TOGETHER:
                yield payloads, np.arange(number, number + _TOGETHER)
                payloads, number = [], number + _TOGETHER
        yield payloads, np.arange(number, number + len(payloads))
        number += len(payloads)


class _Bytes:
    """A stream as the parts of Avro: numbers of variable length, and bytes that are counted."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._next = b""

    def at_end(self) -> bool:
        """Whether nothing follows."""
        self._next = self._next or bytes(self._stream.read(1))
        return not self._next

    def take(self, count: int, what: str = "a mark") -> bytes:
        """So many bytes."""
        if not 0 <= count <= _LARGEST_BLOCK:
            raise Unreadable("bad_avro", f"expected {what}, got a length of {count:,} bytes")
        found = self._next + bytes(self._stream.read(count - len(self._next))) if count else b""
        self._next = self._next if not count else b""
        if len(found) < count:
            raise Unreadable("bad_avro", f"cut off: expected {what} of {count:,} bytes, got {len(found):,}")
        return found

    def long(self, what: str) -> int:
        """A number of at most 64 bits."""
        bits = shift = 0
        while shift < 70:
            byte = self.take(1, what)[0]
            bits |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (bits >> 1) ^ -(bits & 1)
        raise Unreadable("bad_avro", f"expected {what}, got a number of more than 64 bits")

    def counted(self, what: str) -> bytes:
        """Bytes behind their number."""
        return self.take(self.long(f"the length of {what}"), what)


def _long(number: int) -> bytes:
    """A number that is not negative, as Avro writes it."""
    bits, found = number << 1, bytearray()
    while bits > 127:
        found.append(bits & 127 | 128)
        bits >>= 7
    return bytes([*found, bits])


def _map(values: dict[str, bytes]) -> bytes:
    parts = [_long(len(key)) + key.encode() + _long(len(value)) + value for key, value in values.items()]
    return _long(len(values)) + b"".join(parts) + _long(0)
