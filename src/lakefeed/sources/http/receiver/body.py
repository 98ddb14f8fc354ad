"""The body of a request: read within its time and its size, and decompressed within its size."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa

from lakefeed.formats.compression import gunzip, unzstd
from lakefeed.formats.refusal import Misfit
from lakefeed.sources.http.receiver.refusal import Refusal
from lakefeed.units import format_duration, format_size

Receive = Callable[[], Awaitable[Any]]
Headers = dict[bytes, bytes]

ARRIVED = "lakefeed.arrived"
"""The extension of ASGI that tells whether `receive` would return at once."""
GONE = "lakefeed.gone"
"""The extension of ASGI that tells whether the client has gone."""
_INFLATE = {"gzip": gunzip, "x-gzip": gunzip, "zstd": unzstd}
ENCODINGS = "gzip, zstd"
_SMALL = 64 * 1024
"""Bytes of a body that is not wanted that are read all the same."""
_DROP_SECONDS = 1.0


class Disconnected(Exception):
    """The client has gone before its request was whole."""


def announced(headers: Headers, limit: int) -> int:
    """How many bytes a request says that it has; 0 where it sends them in chunks. Raises Refusal."""
    length = headers.get(b"content-length")
    if length is None:
        if b"transfer-encoding" in headers:
            return 0
        raise Refusal(
            411,
            "the request has neither Content-Length nor Transfer-Encoding, and so no body",
            "send the events as the body of the request",
        )
    # The parser has seen that it is a number.
    if int(length) > limit:
        raise too_large(limit)
    return int(length)


def too_large(limit: int) -> Refusal:
    """More than is taken at once."""
    return Refusal(
        413,
        f"the body has more than {format_size(limit)} (max_body), counted when decompressed",
        "send fewer events in a request",
        closes=True,
    )


class Body:
    """The body of one request, as it comes in."""

    def __init__(self, headers: Headers, receive: Receive, arrived: Callable[[], bool]) -> None:
        self._headers = headers
        self._receive = receive
        self._arrived = arrived
        self._is_whole = False

    async def read(self, limit: int, timeout: float, taking: Callable[[int], None]) -> bytes:
        """All bytes; `taking` is told of each piece, and may refuse it."""
        pieces: list[bytes] = []
        size, ends = 0, 0.0
        while not self._is_whole:
            if self._arrived():
                # Most bodies are here before anybody asks: for them no clock is needed.
                piece = await self._piece()
            else:
                ends = ends or asyncio.get_running_loop().time() + timeout
                piece = await self._piece_until(ends, timeout)
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            taking(len(piece))
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _piece_until(self, ends: float, timeout: float) -> bytes:
        try:
            async with asyncio.timeout_at(ends):
                return await self._piece()
        except TimeoutError:
            raise Refusal(
                408,
                f"the body did not arrive within {format_duration(timeout)} (body_timeout)",
                "send it faster, or in smaller requests",
                closes=True,
            ) from None

    async def drop(self) -> bool:
        """Read the rest if it is small, so that the connection can be used again; whether it was."""
        length = self._headers.get(b"content-length", b"0")
        if self._is_whole:
            return True
        if b"transfer-encoding" in self._headers or int(length) > _SMALL:
            return False
        try:
            async with asyncio.timeout(_DROP_SECONDS):
                while not self._is_whole:
                    await self._piece()
        except TimeoutError:
            return False
        return True

    async def _piece(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        self._is_whole = not message.get("more_body")
        piece: bytes = message.get("body", b"")
        return piece


def inflated(body: bytes, encoding: str, limit: int) -> bytes:
    """The decompressed body; stops as soon as it is larger than the limit. Raises Refusal."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    inflate = _INFLATE.get(encoding)
    if inflate is None:
        raise Refusal(
            415,
            f"the content encoding {encoding[:50]} is not taken here",
            f"send it plain, or with one of {ENCODINGS}",
            headers={"Accept-Encoding": ENCODINGS},
        )
    try:
        return inflate(body, limit)
    except Misfit as misfit:
        if misfit.code == "too_large":
            raise too_large(limit) from None
        raise Refusal(400, f"the body is not {encoding}: {misfit.message}", "compress it again") from None
    except (zlib.error, pa.ArrowException, OSError) as error:
        raise Refusal(400, f"the body is not {encoding}: {error}", "compress it again") from None
