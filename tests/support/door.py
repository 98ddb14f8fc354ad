"""A process between a client and a server of objects, which passes requests on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class Door(BaseHTTPRequestHandler):
    """Passes a request on as it is; a kind of door says what it does otherwise."""

    protocol_version = "HTTP/1.1"
    # An answer that leaves in two pieces would wait 40 ms for the second.
    disable_nagle_algorithm = True
    behind = ""
    _backend: HTTPConnection | None = None

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def take(self, body: bytes) -> None:
        """Answer one request."""
        self.answer(*self.ask(self.command, self.path, body, dict(self.headers)))

    def _take(self) -> None:
        self.take(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _take

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, list[tuple[str, str]]]:
        """What the server behind says. A connection is kept as long as that of the client."""
        for again in (False, True):
            if self._backend is None or again:
                self._backend = HTTPConnection(self.behind, timeout=30)
            try:
                self._backend.request(method, path, body, headers or {})
                found: HTTPResponse = self._backend.getresponse()
                return found.status, found.read(), found.getheaders()
            except OSError:
                # The server had ended a connection that was idle.
                if again:
                    raise
        raise AssertionError

    def answer(
        self, status: int, content: bytes = b"", headers: Sequence[tuple[str, str]] | None = None
    ) -> None:
        """Answer the client."""
        self.send_response_only(status)
        length = str(len(content))
        for name, value in headers or ():
            if name.lower() == "content-length":
                length = value if self.command == "HEAD" else length
            elif name.lower() not in ("transfer-encoding", "connection", "keep-alive"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def command_of(module: str, endpoint: str) -> list[str]:
    """How a door is started; its port comes last."""
    tests = Path(__file__).resolve().parents[1]
    return ["env", f"PYTHONPATH={tests}", sys.executable, "-m", module, endpoint]


def serve(door: type[Door]) -> None:
    """Be a door: the arguments of the process are what is behind it, and its port."""
    endpoint, port = sys.argv[1:]
    door.behind = urlsplit(endpoint).netloc
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), door)
    server.daemon_threads = True
    server.serve_forever()
