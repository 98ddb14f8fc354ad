"""The offset channel: how far Spark may read, and in which tasks.

The flow in the driver program tells it to the reader in Spark, over a socket, one line of JSON at a time.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lakefeed.events import OffsetRange, Offsets, Split
from lakefeed.files.names import Serial

_NO_TASKS = "[0, []]"
_PATIENCE = 1.0
"""How long a question for the next offsets may stay open, in seconds."""

_LONGEST_ADDRESS = 100
"""Bytes; the kernel takes 107 for the name of a socket."""


class OffsetChannel:
    """The driver's end of the line: holds the offsets that Spark may read up to."""

    def __init__(self, start: Offsets) -> None:
        self._end = dict(start)
        self._tasks = _NO_TASKS
        self._moved = threading.Condition()
        self._folder = _short_folder()
        self.address = str(Path(self._folder) / "offsets")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen()
        threading.Thread(target=self._accept, name="offsets", daemon=True).start()

    def open_to(self, end: Offsets, tasks: Sequence[Split]) -> None:
        """Let Spark read up to `end`, in these tasks; it starts the batch at once."""
        with self._moved:
            self._end, self._tasks = dict(end), tasks_to_json(tasks, time.time_ns() // 1000)
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
            threading.Thread(target=self._serve, args=(connection,), name="offsets", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # The reader goes away with its query, often in the middle of a question.
        with connection, suppress(OSError, ValueError), connection.makefile("rw", encoding="utf-8") as line:
            for question in line:
                asked = json.loads(question)
                line.write(
                    self._tasks_up_to(asked["end"]) if "end" in asked else self._beyond(asked["start"])
                )
                line.write("\n")
                line.flush()

    def _beyond(self, start: Offsets) -> str:
        with self._moved:
            self._moved.wait_for(lambda: self._end != start, timeout=_PATIENCE)
            return json.dumps(self._end)

    def _tasks_up_to(self, end: Offsets) -> str:
        """The tasks of the batch that ends there; none for any other, which then commits nothing."""
        with self._moved:
            return self._tasks if self._end == end else _NO_TASKS


class ReaderEnd:
    """The reader's end of the line; it connects with its first question."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._line: Any = None

    def beyond(self, start: Offsets) -> Offsets:
        """How far Spark may read; waits a little for more than `start`."""
        answer: Offsets = json.loads(self._ask({"start": start}) or json.dumps(start))
        return answer

    def tasks(self, end: Offsets) -> list[tuple[Split, Serial]]:
        """The tasks of the batch that ends there, without the number of their batch."""
        return tasks_from_json(self._ask({"end": end}) or _NO_TASKS)

    def _ask(self, question: dict[str, Any]) -> str:
        """The answer; empty when the other end has gone."""
        if self._line is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(self._address)
            self._line = connection.makefile("rw", encoding="utf-8")
        self._line.write(json.dumps(question) + "\n")
        self._line.flush()
        return str(self._line.readline())


def tasks_to_json(tasks: Sequence[Split], planned: int) -> str:
    """Tasks as one line of text, and when they were planned, in microseconds since 1970."""
    splits = [[[one.partition, one.start, one.end, one.payload] for one in task] for task in tasks]
    return json.dumps([planned, splits])


def tasks_from_json(text: str) -> list[tuple[Split, Serial]]:
    """Read back what `tasks_to_json` wrote."""
    planned, splits = json.loads(text)
    return [
        (tuple(OffsetRange(*one) for one in split), Serial(task=at, planned=planned))
        for at, split in enumerate(splits)
    ]


def _short_folder() -> str:
    """A folder of our own for the socket; not in TMPDIR where that is too long for the name of a socket."""
    folder = tempfile.mkdtemp(prefix="lakefeed-")
    if len(f"{folder}/offsets".encode()) <= _LONGEST_ADDRESS:
        return folder
    Path(folder).rmdir()
    return tempfile.mkdtemp(prefix="lakefeed-", dir="/tmp")
