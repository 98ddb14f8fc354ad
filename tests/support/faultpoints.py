"""The points at which tests kill a process; see `lakefeed.engine.faultpoints`."""

from __future__ import annotations

POINTS = (
    "task_started",
    "task_written",
    "batch_planned",
    "files_written",
    "letters_committed",
    "table_committed",
    "batch_committed",
)
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
