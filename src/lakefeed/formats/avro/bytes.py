"""Avro's smallest parts, read from one payload: numbers of variable length, and bytes that are counted."""

from __future__ import annotations

from lakefeed.formats.refusal import Misfit

_LONGEST_NUMBER = 10


class ByteReader:
    """Reads a payload from a byte on; every method raises Misfit with the byte that is wrong."""

    def __init__(self, payload: bytes, at: int) -> None:
        self._payload = payload
        self.at = at

    def wrong(self, message: str, at: int | None = None) -> Misfit:
        """What is wrong with the byte at an offset, or with the next one."""
        return Misfit("bad_avro", f"byte {(self.at if at is None else at) + 1}: {message}")

    def take(self, count: int, what: str) -> bytes:
        """So many bytes."""
        left = len(self._payload) - self.at
        if count > left:
            raise self.wrong(f"expected {what} of {count} bytes, got {left}, then the end of the payload")
        self.at += count
        return self._payload[self.at - count : self.at]

    def long(self, what: str) -> int:
        """A number of at most 64 bits."""
        start, bits, shift = self.at, 0, 0
        while True:
            if self.at == len(self._payload):
                raise self.wrong(f"expected {what}, got the end of the payload", start)
            byte = self._payload[self.at]
            self.at += 1
            bits |= (byte & 127) << shift
            shift += 7
            if byte < 128 or self.at - start == _LONGEST_NUMBER:
                break
        if byte > 127 or bits >> 64:
            raise self.wrong(f"expected {what}, got a number of more than 64 bits", start)
        return (bits >> 1) ^ -(bits & 1)

    def counted(self, what: str) -> bytes:
        """Bytes behind their number."""
        start = self.at
        count = self.long(f"the length of {what}")
        if count < 0:
            raise self.wrong(f"expected {what}, got a length of {count}", start)
        return self.take(count, what)
