"""Avro's container files as payloads: the schema stands in front, then blocks of records."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol

import cramjam

from lakefeed.formats import DEFAULT_MAX_PAYLOAD
from lakefeed.formats.avro.bytes import ByteReader
from lakefeed.formats.compression import unzstd
from lakefeed.formats.refusal import Misfit
from lakefeed.text import one_of
from lakefeed.units import format_size

MAGIC = b"Obj\x01"
SYNC = 16
_CHECKSUM = 4
_ONE_TOO_MANY = DEFAULT_MAX_PAYLOAD + 1
_DAMAGED = (zlib.error, lzma.LZMAError, cramjam.DecompressionError)


def opened(payload: bytes) -> tuple[str, bytes]:
    """The text of the schema, and the bytes of the record, of a container with exactly one. Raises Misfit."""
    if not payload.startswith(MAGIC):
        got = f"0x{payload[: len(MAGIC)].hex()}" if payload else "an empty payload"
        message = f"expected a container, which begins with 0x{MAGIC.hex()}, got {got}"
        raise Misfit("bad_framing", message)
    reader = ByteReader(payload, len(MAGIC))
    header = header_map(reader)
    sync = reader.take(SYNC, "a mark")
    decompress = decompressor(header.get("avro.codec", b"null"))
    contents: list[bytes] = []
    records = 0
    while reader.at < len(payload):
        records += reader.long("the number of records")
        contents.append(reader.counted("a block"))
        if reader.take(SYNC, "a mark") != sync:
            raise reader.wrong("the mark after a block is not that of the header")
    if records != 1:
        raise Misfit("many_records", f"expected a container of one record, got {records}")
    return schema_text(header), b"".join(decompress(content) for content in contents if content)


class Parts(Protocol):
    """What Avro's smallest parts are read from."""

    def long(self, what: str) -> int:
        """A number of at most 64 bits."""

    def counted(self, what: str) -> bytes:
        """Bytes behind their number."""


def header_map(reader: Parts) -> dict[str, bytes]:
    """What the header of a container says: its schema, and how it is compressed."""
    header: dict[str, bytes] = {}
    while count := reader.long("the number of entries of the header"):
        if count < 0:
            reader.long("the size of the header")
        for _ in range(abs(count)):
            key = reader.counted("a key of the header").decode(errors="replace")
            header[key] = reader.counted("a value of the header")
    return header


def schema_text(header: dict[str, bytes]) -> str:
    """The schema of a container. Raises Misfit."""
    try:
        return header["avro.schema"].decode()
    except (KeyError, UnicodeDecodeError):
        raise Misfit("bad_schema", "the header of the container holds no schema") from None


def decompressor(name: bytes) -> Callable[[bytes], bytes]:
    """What decompresses a block. Raises Misfit, and so does what it returns."""
    found = _CODECS.get(name)
    if found is None:
        known = one_of([each.decode() for each in _CODECS])
        message = f"expected a container of {known}, got {name.decode(errors='replace')[:40]}"
        raise Misfit("bad_compression", message)

    def decompress(content: bytes) -> bytes:
        try:
            plain = found(content)
        except (Misfit, OSError, EOFError, ValueError, *_DAMAGED) as error:
            if isinstance(error, Misfit) and error.code == "too_large":
                raise _too_large() from None
            message = f"a block of the container is not {name.decode()}: {error}"
            raise Misfit("bad_compression", message) from None
        if len(plain) > DEFAULT_MAX_PAYLOAD:
            raise _too_large()
        return plain

    return decompress


def _too_large() -> Misfit:
    limit = format_size(DEFAULT_MAX_PAYLOAD)
    return Misfit("too_large", f"a block of the container has more than {limit} when decompressed")


def _unsnappy(content: bytes) -> bytes:
    """Snappy, with the checksum of the plain bytes behind it."""
    if cramjam.snappy.decompress_raw_len(content) > DEFAULT_MAX_PAYLOAD:
        raise _too_large()
    plain = bytes(cramjam.snappy.decompress_raw(content[:-_CHECKSUM]))
    if zlib.crc32(plain).to_bytes(_CHECKSUM, "big") != content[-_CHECKSUM:]:
        raise ValueError("its checksum is wrong")
    return plain


_CODECS: dict[bytes, Callable[[bytes], bytes]] = {
    b"null": bytes,
    b"deflate": lambda content: zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, _ONE_TOO_MANY),
    b"snappy": _unsnappy,
    b"zstandard": lambda content: unzstd(content, DEFAULT_MAX_PAYLOAD),
    b"bzip2": lambda content: bz2.BZ2Decompressor().decompress(content, _ONE_TOO_MANY),
    b"xz": lambda content: lzma.LZMADecompressor().decompress(content, _ONE_TOO_MANY),
}
