"""The gate: how far Spark may read, told by the flow in the driver program to the reader in Spark."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakefeed.sources import Offsets

_PATIENCE = 1.0
"""How long a question for the next offsets may stay open, in seconds."""

_LONGEST_ADDRESS = 100
"""Bytes; the kernel takes 107 for the name of a socket."""


class OffsetChannel:
    """The driver's end of the line: holds the offsets that Spark may read up to."""

    def __init__(self, start: Offsets) -> None:
        self._end = dict(start)
        self._moved = threading.Condition()
        self._folder = _short_folder()
        self.address = str(Path(self._folder) / "gate")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen()
        threading.Thread(target=self._accept, name="gate", daemon=True).start()

    def open_to(self, end: Offsets) -> None:
        """Let Spark read up to `end`; it starts the batch at once."""
        with self._moved:
            self._end = dict(end)
            self._moved.notify_all()

    def close(self) -> None:
        """Answer no more."""
        # Closing alone would leave the thread inside `accept` for ever.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="gate", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # The reader goes away with its query, often in the middle of a question.
        with connection, suppress(OSError, ValueError), connection.makefile("rw", encoding="utf-8") as line:
            for question in line:
                line.write(json.dumps(self._wait_beyond(json.loads(question))) + "\n")
                line.flush()

    def _wait_beyond(self, start: Offsets) -> Offsets:
        with self._moved:
            self._moved.wait_for(lambda: self._end != start, timeout=_PATIENCE)
            return self._end


def _short_folder() -> str:
    """A folder of our own for the socket; not in TMPDIR where that is too long for the name of a socket."""
    folder = tempfile.mkdtemp(prefix="lakefeed-")
    if len(f"{folder}/gate".encode()) <= _LONGEST_ADDRESS:
        return folder
    Path(folder).rmdir()
    return tempfile.mkdtemp(prefix="lakefeed-", dir="/tmp")
