"""A process that is measured, and the log of the table that it writes, as another reader sees it come."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_POLL = 0.02


@contextmanager
def running(command: list[str], said: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the body, and all that it has started with it."""
    import psutil

    from support.processes import spawn

    process = spawn(command, stdout=said)
    try:
        yield process
    finally:
        left = []
        with suppress(psutil.NoSuchProcess):
            left = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        for one in left:
            with suppress(psutil.NoSuchProcess):
                one.kill()


class Log:
    """The log of a table, looked at often and cheaply: only whether the next version is there."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.seen: list[float] = []
        """When each version could first be read, in seconds since 1970."""
        self._rows: list[int] = []

    @property
    def rows(self) -> int:
        """The rows of all versions that were seen."""
        while len(self._rows) < len(self.seen):
            adds = self.adds(len(self._rows))
            self._rows.append(sum(json.loads(add["stats"])["numRecords"] for add in adds))
        return sum(self._rows)

    def follow(self, until: Callable[[], bool], limit: float, run: subprocess.Popen[bytes]) -> None:
        """Note the moment of each version as it comes; AssertionError when it takes longer than `limit`."""
        deadline = time.monotonic() + limit
        while not until():
            assert run.poll() is None, f"{run.args!r} ended with code {run.returncode}"
            assert time.monotonic() < deadline, f"{run.args!r} took longer than {limit:.0f} s"
            while self._entry(len(self.seen)).exists():
                self.seen.append(time.time())
            time.sleep(_POLL)

    def follow_to_rows(self, count: int, limit: float, run: subprocess.Popen[bytes]) -> None:
        """Follow until so many rows can be read."""
        self.follow(lambda: self.rows >= count, limit, run)

    def adds(self, version: int) -> list[dict[str, Any]]:
        """The files with new rows in a version; those that only replace others are none."""
        actions = map(json.loads, self._entry(version).read_text().splitlines())
        return [one["add"] for one in actions if one.get("add", {}).get("dataChange")]

    def _entry(self, version: int) -> Path:
        return self.table / "_delta_log" / f"{version:020}.json"
