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

POINTS = (
    "task_started",
    "task_written",
    "batch_planned",
    "files_written",
    "letters_committed",
    "table_committed",
    "batch_committed",
)
SHAPED_POINT = "task_shaped"
"""The writing half of a task has written what Spark's operators made."""
END_POINT = "runs_ending"
"""Every flow has ended; tables whose content each run replaces do not know it yet."""
JOIN_POINTS = ("tables_parted", "tables_ready", "tables_joined")
"""Where a table leaves the others for a flow of its own, and comes back."""

REFRESH_POINTS = ("refresh_started", "refresh_created", "refresh_written", "refresh_committed")
"""Where a query is run, its result is in files, and its commit has landed."""

UPKEEP_POINTS = (
    "compact_started",
    "compact_done",
    "cluster_started",
    "cluster_done",
    "delete_started",
    "delete_done",
    "vacuum_started",
    "vacuum_deleted",
    "vacuum_done",
)
"""Points of upkeep, which runs only in a pipeline that goes on for a while."""

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
