"""Named points on the way of an event at which a test may kill the process.

`LAKEFEED_KILL_AT=files_written:2` kills the process with SIGKILL when it passes `files_written` for the
second time. With a file's path as a third part, only the process that creates this file dies: Spark starts a
new worker for each one that was killed, and all of them count from one. Without the variable, passing a point
does nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

SHAPED_POINT = "task_shaped"
"""The writing half of a task has written what Spark's operators made."""
END_POINT = "runs_ending"
"""Every flow has ended; tables whose content each run replaces do not know it yet."""

_lock = threading.Lock()
_passed: dict[str, int] = {}


def passing(point: str) -> None:
    """Say that the process has come to this point."""
    wanted = os.environ.get("LAKEFEED_KILL_AT")
    if not wanted:
        return
    name, count, file = (*wanted.split(":", 2), "", "")[:3]
    with _lock:
        _passed[point] = _passed.get(point, 0) + 1
        if name == point and _passed[point] == int(count or 1) and _is_first(file):
            os.kill(os.getpid(), signal.SIGKILL)


def _is_first(file: str) -> bool:
    if not file:
        return True
    # A worker that outlives the run which was to be killed still has the wish of that one.
    with suppress(FileExistsError, FileNotFoundError), Path(file).open("x"):
        return True
    return False
