"""A server that answers as a schema registry does: at once, with what a test has told it."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
"""A status, and a body: bytes as they are, anything else as JSON."""


@dataclass
class SchemaServer:
    """What it answers by path, one answer or one after the other, and what it was asked."""

    schemas: dict[str, Any] = field(default_factory=dict)
    """What it answers with 200, where `answers` has nothing."""
    answers: dict[str, Answer | list[Answer]] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""
    before: Callable[[], object] = lambda: None


@contextmanager
def serving_schemas(
    schemas: dict[str, Any] | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[SchemaServer]:
    state = SchemaServer(schemas or {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    state.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def _handler(state: SchemaServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.before()
            state.asked.append((self.path, self.headers.get("Authorization")))
            schema = state.schemas.get(self.path)
            known = (200, schema) if schema else (404, {"error_code": 40403, "message": "Schema not found"})
            found = state.answers.get(self.path, known)
            status, body = found.pop(0) if isinstance(found, list) else found
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with suppress(BrokenPipeError):
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
