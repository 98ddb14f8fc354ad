"""A server of objects on loopback, whichever cloud it stands for."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from support.processes import free_port, spawn, tail, wait_until
from support.servers import Server

START_SECONDS = 180


class ObjectServer(Server):
    """A program that keeps objects in memory.

    `storage` is what a pipeline file puts under `storage:` to reach it; `url` is where a table lies in it.
    """

    scheme: str

    def __init__(self, command: Callable[[int], Sequence[str]], answers_at: str) -> None:
        self.name = type(self).__name__
        self._log = Path(tempfile.mkstemp(prefix="lakefeed-store-")[1])
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self._answers_at = answers_at
        self._process = spawn(command(port), stdout=self._log, cwd=self._log.parent)
        try:
            wait_until(self._answers, START_SECONDS, lambda: f"{self.name} is silent:\n{tail(self._log)}")
        except BaseException:
            self.close()
            raise

    @property
    def storage(self) -> dict[str, str]:
        """The storage options that lead to this server."""
        return self.storage_through(self.endpoint)

    def storage_through(self, endpoint: str) -> dict[str, str]:
        """The storage options that lead to this server by another door."""
        raise NotImplementedError

    def create_bucket(self, name: str) -> None:
        """Make a bucket, or a container."""
        raise NotImplementedError

    def url(self, bucket: str, key: str) -> str:
        """Where a table lies."""
        return f"{self.scheme}://{bucket}/{key}"

    def _answers(self) -> bool:
        code = self._process.poll()
        assert code is None, f"{self.name} ended with code {code}:\n{tail(self._log)}"
        try:
            with urlopen(f"{self.endpoint}{self._answers_at}", timeout=1):
                return True
        except URLError as error:
            # Whoever refuses an answer is there.
            return hasattr(error, "code")
        except OSError:
            return False
