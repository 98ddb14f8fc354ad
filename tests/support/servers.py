"""Servers in child processes: begun and closed as contexts, some of them stopped and started in between."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from support.processes import tail

STOP_SECONDS = 120


class Server:
    """A process that begins when this is made, with a log of its own, and is gone when this is closed."""

    _process: subprocess.Popen[bytes]
    _log: Path

    def close(self) -> None:
        """End it; what it holds goes with it."""
        self._process.kill()
        self._process.wait()
        self._log.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RestartableServer:
    """A process that is started, ended and started again; its data and port stay until it is closed."""

    _process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        raise NotImplementedError

    def start(self) -> None:
        """Return when it answers."""
        raise NotImplementedError

    def kill(self) -> None:
        """SIGKILL."""
        raise NotImplementedError

    def close(self) -> None:
        """End it and delete its data."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, number: signal.Signals) -> None:
        """Ask it to end, and wait for that."""
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            failure = f"{type(self).__name__} did not stop within {STOP_SECONDS} s:\n{tail(self.log)}"
            raise AssertionError(failure) from None
        self._process = None
