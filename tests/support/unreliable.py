"""A proxy in front of the S3 server that answers some requests the way that stores do on bad days.

It is a process of its own: the file system of delta-rs waits for answers without letting other threads of
its process run.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from support.processes import free_port, spawn, tail, wait_until
from support.s3 import S3Server

SLOW_SECONDS = 1.0
CONTROL = "/-/faults"
"""Where the proxy takes and shows faults; no bucket is called so."""


@dataclass
class Fault:
    """What happens to the next `times` requests of a method whose path matches.

    `unavailable` answers 503 and does nothing; `lost_answer` does it and answers 500; `precondition` answers
    412 and does nothing; `refused` answers 403 with a text; `slow` waits first; `silent` never answers.
    """

    kind: str
    method: str = "PUT"
    path: str = ".*"
    times: int = 1
    text: str = "no"
    met: int = 0

    def meets(self, method: str, path: str) -> bool:
        return self.met < self.times and method == self.method and re.search(self.path, path) is not None


class UnreliableStore:
    """The same objects as the server's, through a door that jams. `storage` leads through it."""

    def __init__(self, server: S3Server) -> None:
        port = free_port()
        self._address = f"http://127.0.0.1:{port}"
        self._log = Path(tempfile.mkstemp(prefix="lakefeed-door-")[1])
        self.storage = {**server.storage, "AWS_ENDPOINT_URL": self._address}
        tests = str(Path(__file__).parents[1])
        command = [sys.executable, "-m", "support.unreliable", server.endpoint, str(port)]
        self._process = spawn(command, stdout=self._log, cwd=Path(tests))
        wait_until(self._answers, 30, lambda: f"the proxy does not answer:\n{tail(self._log)}")

    def inject(self, fault: Fault) -> None:
        """Let a fault happen from now on."""
        self._ask("POST", json.dumps(asdict(fault)).encode())

    def met(self) -> list[int]:
        """How often each fault has happened, in the order in which they were injected."""
        return [fault["met"] for fault in json.loads(self._ask("GET"))]

    def heal(self) -> None:
        """From now on nothing happens."""
        self._ask("DELETE")

    def __enter__(self) -> UnreliableStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._log.unlink()

    def _ask(self, method: str, body: bytes | None = None) -> bytes:
        with urlopen(Request(self._address + CONTROL, body, method=method), timeout=10) as answer:
            content: bytes = answer.read()
            return content

    def _answers(self) -> bool:
        assert self._process.poll() is None, tail(self._log)
        try:
            return self.met() == []
        except OSError:
            return False


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behind = ""
    faults: list[Fault] = []  # noqa: RUF012 (of the process)
    lock = threading.Lock()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _take(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == CONTROL:
            self._control(body)
            return
        match self._next_fault():
            case None:
                self._forward(body)
            case Fault("unavailable"):
                self._answer(503, _error("SlowDown", "Please reduce your request rate."))
            case Fault("lost_answer"):
                self._ask_behind(body)
                self._answer(500, _error("InternalError", "We encountered an internal error."))
            case Fault("precondition"):
                self._answer(412, _error("PreconditionFailed", "At least one precondition did not hold."))
            case Fault("refused", text=text):
                self._answer(403, _error("AccessDenied", text))
            case Fault("slow"):
                time.sleep(SLOW_SECONDS)
                self._forward(body)
            case Fault("silent"):
                time.sleep(60)
                self.close_connection = True

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _take

    def _control(self, body: bytes) -> None:
        with self.lock:
            if self.command == "POST":
                self.faults.append(Fault(**json.loads(body)))
            elif self.command == "DELETE":
                self.faults.clear()
            self._answer(200, json.dumps([asdict(fault) for fault in self.faults]).encode())

    def _next_fault(self) -> Fault | None:
        with self.lock:
            found = next((fault for fault in self.faults if fault.meets(self.command, self.path)), None)
            if found:
                found.met += 1
            return found

    def _ask_behind(self, body: bytes) -> tuple[int, bytes, list[tuple[str, str]]]:
        backend = HTTPConnection(self.behind, timeout=30)
        try:
            backend.request(self.command, self.path, body, dict(self.headers))
            answer = backend.getresponse()
            return answer.status, answer.read(), answer.getheaders()
        finally:
            backend.close()

    def _forward(self, body: bytes) -> None:
        self._answer(*self._ask_behind(body))

    def _answer(self, status: int, content: bytes, headers: list[tuple[str, str]] | None = None) -> None:
        self.send_response_only(status)
        length = str(len(content))
        for name, value in headers or ():
            if name.lower() == "content-length":
                length = value if self.command == "HEAD" else length
            elif name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _error(code: str, message: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


def _main(endpoint: str, port: str) -> None:
    _Door.behind = urlsplit(endpoint).netloc
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), _Door)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    _main(*sys.argv[1:])
