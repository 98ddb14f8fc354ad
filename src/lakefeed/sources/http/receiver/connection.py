"""A connection: uvicorn's protocol with bounds that it does not have, and refusals in JSON."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import unquote

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from lakefeed.sources.http.receiver.body import ARRIVED, GONE

_MOST_CONNECTIONS = 2_000
_HEADER_SECONDS = 10.0
"""How long the headers of a request may take, and a new connection to begin with them."""
_MOST_HEADER_BYTES = 64 * 1024


class Exchange(RequestResponseCycle):
    """Uvicorn's, but an answer leaves in one write: a second one costs as much as the rest of a request."""

    def arrived(self) -> bool:
        """Whether something of the body, or its end, is here and was not asked for yet."""
        return self.message_event.is_set()

    def is_gone(self) -> bool:
        """Whether the client has closed the connection, and so hears no answer."""
        return self.disconnected

    async def send(self, message: Any) -> None:
        """Keep the head until the body comes, which our application sends as a whole."""
        if message["type"] == "http.response.start":
            self._head = message
            self.response_started = True
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        parts = [STATUS_LINE[self._head["status"]]]
        for name, value in self._head["headers"]:
            if name == b"connection":
                self.keep_alive = False
            else:
                parts += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        self.transport.write(b"".join((*parts, b"\r\n", message["body"])))
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


class Connection(HttpToolsProtocol):
    """Ends connections whose headers are too large or too slow: uvicorn waits for ever, and keeps all."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._in_headers = True
        self._header_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._idle_since = 0.0

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
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, but none that comes behind the body."""
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The application begins, unless it has a request of this connection to answer first.

        As uvicorn does it, without what our application never looks at.
        """
        self._in_headers = False
        if self.parser.should_upgrade():
            # The parser takes no body then: what is one would be read as the next request.
            self._refuse(400, "the protocol cannot be changed (Upgrade)", "send HTTP/1.1 without Upgrade")
            return
        version = self.parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "method": self.parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self.headers,
        }
        before = self.cycle
        self.cycle = Exchange(
            scope=scope,  # type: ignore[arg-type]
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        scope["extensions"] = {ARRIVED: self.cycle.arrived, GONE: self.cycle.is_gone}
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_message_complete(self) -> None:
        """The body is whole, unless nobody asked for it."""
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for one: with one timer, which is not set anew each time."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._expect_more(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """End a connection that nothing has come over for long enough."""
        self.timeout_keep_alive_task = None
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._expect_more(left)
        elif self.cycle.response_complete and self._deadline is None:
            super().timeout_keep_alive_handler()

    def _expect_more(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """Nothing: the timer looks for itself whether something has come."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go."""
        self._cancel()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
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
        self.transport.write(head if self.parser.get_method() == b"HEAD" else head + body)
        self.transport.close()
