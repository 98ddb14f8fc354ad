"""A connection: uvicorn's protocol with bounds that it does not have, and refusals in JSON."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

_MOST_CONNECTIONS = 2_000
_HEADER_SECONDS = 10.0
"""How long the headers of a request may take, and a new connection to begin with them."""
_MOST_HEADER_BYTES = 64 * 1024


class Connection(HttpToolsProtocol):
    """Ends connections whose headers are too large or too slow: uvicorn waits for ever, and keeps all."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._in_headers = True
        self._header_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > _MOST_CONNECTIONS:
            self._refuse(503, "too many connections", "send it again later", b"retry-after: 1\r\n")
        else:
            self._deadline = self.loop.call_later(_HEADER_SECONDS, self._too_slow)

    def data_received(self, data: bytes) -> None:
        """Parse; then see whether headers have come to their end."""
        if self.transport.is_closing():
            return
        self._header_bytes += len(data)
        super().data_received(data)
        if not self._in_headers:
            self._header_bytes = 0
            self._cancel()
        elif self._header_bytes > _MOST_HEADER_BYTES:
            self._refuse(431, "the headers are larger than 64KB", "send smaller headers")
        elif self._deadline is None:
            self._deadline = self.loop.call_later(_HEADER_SECONDS, self._too_slow)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_headers = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, but none that comes behind the body."""
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The application begins."""
        self._in_headers = False
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go."""
        self._cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told so as everything else is."""
        self._refuse(400, "this is no valid HTTP request", "send HTTP/1.1 with one length of the body")

    def _too_slow(self) -> None:
        self._deadline = None
        if self.transport is not None and not self.transport.is_closing():
            self._refuse(408, "no request arrived within 10 seconds", "send it faster")

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: int, error: str, fix: str, more: bytes = b"") -> None:
        self._cancel()
        body = orjson.dumps({"error": error, "fix": fix})
        head = (
            STATUS_LINE[status]
            + b"content-type: application/json\r\nconnection: close\r\n"
            + more
            + f"content-length: {len(body)}\r\n\r\n".encode()
        )
        self.transport.write(head + body)
        self.transport.close()
