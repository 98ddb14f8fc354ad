"""Named points on the way of an event at which a test may kill the process.

`LAKEFEED_KILL_AT=files_written:2` kills the process with SIGKILL when it passes `files_written` for the
second time. Without the variable, passing a point does nothing.
"""

from __future__ import annotations

import os
import signal
import threading

POINTS = (
    "task_started",
    "task_written",
    "batch_planned",
    "files_written",
    "letters_committed",
    "table_committed",
    "batch_committed",
)
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
    name, _, count = wanted.partition(":")
    with _lock:
        _passed[point] = _passed.get(point, 0) + 1
        if name == point and _passed[point] == int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)
