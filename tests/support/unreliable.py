"""A proxy in front of a server of objects that answers some requests the way that stores do on bad days.

It is a process of its own: delta-rs waits for answers without letting other threads of its process run.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote
from urllib.request import Request, urlopen

from support.door import Door, command_of, serve
from support.object_server import ObjectServer
from support.processes import free_port, spawn, tail, wait_until
from support.servers import Server

SLOW_SECONDS = 1.0
LATENCY = float(os.environ.get("LAKEFEED_DOOR_LATENCY", "0"))
"""Seconds that every request takes longer."""
CONTROL = "/-/faults"
"""Where the proxy takes and shows faults; no bucket is called so."""
REQUESTS = "/-/requests"
"""Where it shows what it was asked, and forgets it."""


@dataclass
class Fault:
    """What happens to the next `times` requests of a method whose path matches.

    `unavailable` answers 503 and does nothing; `lost_answer` does it and answers 500; `precondition` answers
    412 and does nothing; `unconditional` forgets the condition of a write; `refused` answers 403 with a text,
    or with a code and a text, or 301 for the code of a redirect; `slow` waits first; `paused` waits until the
    door is healed; `cut` does it and ends the connection; `held` does it and never answers; `silent` does not
    even do it. What is asked of DynamoDB stands behind the path.
    """

    kind: str
    method: str = "PUT"
    path: str = ".*"
    times: int = 1
    text: str = "no"
    met: int = 0

    def meets(self, method: str, path: str) -> bool:
        return (
            self.met < self.times
            and method == self.method
            and re.search(self.path, unquote(path)) is not None
        )


class UnreliableStore(Server):
    """The same objects as the server's, through a door that jams. `storage` leads through it."""

    def __init__(self, server: ObjectServer) -> None:
        port = free_port()
        self._address = f"http://127.0.0.1:{port}"
        self._log = Path(tempfile.mkstemp(prefix="lakefeed-door-")[1])
        self.storage = server.storage_through(self._address)
        command = [*command_of("support.unreliable", server.endpoint), str(port)]
        self._process = spawn(command, stdout=self._log)
        wait_until(self._answers, 120, lambda: f"the proxy does not answer:\n{tail(self._log)}")

    def inject(self, fault: Fault) -> None:
        """Let a fault happen from now on."""
        self._ask("POST", json.dumps(asdict(fault)).encode())

    def met(self) -> list[int]:
        """How often each fault has happened, in the order in which they were injected."""
        return [fault["met"] for fault in json.loads(self._ask("GET"))]

    def requests(self) -> list[str]:
        """What the store was asked since this was called last: method and path, in order."""
        found: list[str] = json.loads(self._ask("GET", path=REQUESTS))
        return found

    def heal(self) -> None:
        """From now on nothing happens."""
        self._ask("DELETE")

    def _ask(self, method: str, body: bytes | None = None, path: str = CONTROL) -> bytes:
        with urlopen(Request(self._address + path, body, method=method), timeout=60) as answer:
            content: bytes = answer.read()
            return content

    def _answers(self) -> bool:
        assert self._process.poll() is None, tail(self._log)
        try:
            return self.met() == []
        except OSError:
            return False


class _Door(Door):
    faults: list[Fault] = []  # noqa: RUF012 (of the process)
    asked: list[str] = []  # noqa: RUF012
    lock = threading.Lock()

    def take(self, body: bytes) -> None:
        if self.path == CONTROL:
            self._control(body)
            return
        if self.path == REQUESTS:
            with self.lock:
                self.answer(200, json.dumps(self.asked).encode())
                self.asked.clear()
            return
        with self.lock:
            self.asked.append(f"{self.command} {self.path}{self.headers.get('X-Amz-Target', '')}")
        time.sleep(LATENCY)
        match self._next_fault():
            case None:
                super().take(body)
            case Fault("unavailable"):
                self.answer(503, _error("SlowDown", "Please reduce your request rate."))
            case Fault("lost_answer"):
                self.ask(self.command, self.path, body, dict(self.headers))
                self.answer(500, _error("InternalError", "We encountered an internal error."))
            case Fault("precondition"):
                self.answer(412, _error("PreconditionFailed", "At least one precondition did not hold."))
            case Fault("refused", text=text):
                code, colon, words = text.partition(": ")
                status = 301 if code == "PermanentRedirect" else 403
                self.answer(status, _error(code, words) if colon else _error("AccessDenied", text))
            case Fault("slow"):
                time.sleep(SLOW_SECONDS)
                super().take(body)
            case Fault("paused"):
                wait_until(lambda: not self.faults, 120, lambda: "nobody has healed the door")
                super().take(body)
            case Fault("unconditional"):
                del self.headers["If-None-Match"]
                super().take(body)
            case Fault("cut"):
                self.ask(self.command, self.path, body, dict(self.headers))
                self.close_connection = True
            case Fault("held"):
                self.ask(self.command, self.path, body, dict(self.headers))
                time.sleep(60)
                self.close_connection = True
            case Fault("silent"):
                time.sleep(60)
                self.close_connection = True

    def _control(self, body: bytes) -> None:
        with self.lock:
            if self.command == "POST":
                self.faults.append(Fault(**json.loads(body)))
            elif self.command == "DELETE":
                self.faults.clear()
            self.answer(200, json.dumps([asdict(fault) for fault in self.faults]).encode())

    def _next_fault(self) -> Fault | None:
        asked = self.path + self.headers.get("X-Amz-Target", "")
        with self.lock:
            found = next((fault for fault in self.faults if fault.meets(self.command, asked)), None)
            if found:
                found.met += 1
            return found


def _error(code: str, message: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


if __name__ == "__main__":
    serve(_Door)
