"""A real schema registry, on loopback, and a gate in front of it that lets nobody through when told so."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from support.jars import REGISTRY, fetch, java
from support.processes import free_port, spawn, tail, wait_until

START_SECONDS = 240
ANSWER_SECONDS = 120
_API = "/apis/ccompat/v7"


class SchemaRegistry:
    """A registry that keeps its schemas in memory. It dies with the test process, whatever ends that."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lakefeed-registry-"))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{_API}"

    def __enter__(self) -> SchemaRegistry:
        program = fetch(REGISTRY)
        jar = next(program.glob("*-runner.jar"))
        log = self._folder / "registry.log"
        self._process = spawn(
            [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", str(jar)],
            stdout=log,
            cwd=self._folder,
            env={
                **os.environ,
                "QUARKUS_HTTP_HOST": "127.0.0.1",
                "QUARKUS_HTTP_PORT": str(self._port),
                "QUARKUS_LOG_LEVEL": "WARN",
            },
        )
        try:
            failure = f"the schema registry does not answer:\n{tail(log)}"
            wait_until(self._answers, START_SECONDS, lambda: failure, every=0.2)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, "the schema registry has ended"
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=ANSWER_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class RegistryGate:
    """Passes requests on to a registry: only with a login, if it has one, and not while it is `broken`."""

    def __init__(self, registry: SchemaRegistry, login: str | None = None, broken: int = 0) -> None:
        self._registry = registry
        self.login = login
        self.broken = broken
        """How many requests are answered with 503 yet."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RegistryGate:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, login: str | None) -> tuple[int, bytes]:
        if self.broken:
            self.broken -= 1
            return 503, b"{}"
        if self.login is not None and login != self.login:
            return 401, b"{}"
        try:
            with urllib.request.urlopen(f"{self._registry.url}{path}", timeout=ANSWER_SECONDS) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        channel = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, content = channel.answer(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
