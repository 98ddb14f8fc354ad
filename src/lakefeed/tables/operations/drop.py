"""Dropping a table: its files and its log are deleted, and nothing else in its directory."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from lakefeed.stores import delete_files, forget_commits, local_folder, store_errors
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import Extent, extent
from lakefeed.tables.log.entry import LOG
from lakefeed.tables.log.listing import ListedFile, companion, listing
from lakefeed.tables.table import LakeTable


@dataclass(frozen=True)
class DropPlan:
    """What would be deleted; nothing has been changed."""

    version: int
    table: Extent
    files: tuple[ListedFile, ...]
    """Data of all versions, then the log: whoever is interrupted finds a table that can be dropped again."""
    left_alone: tuple[str, ...]
    positions: tuple[str, ...]
    """Application ids whose positions go with the log."""

    @property
    def deleted(self) -> Extent:
        """How much would be deleted, old versions and the log included."""
        return Extent(len(self.files), sum(file.size for file in self.files), self.table.rows)


def plan(table: LakeTable) -> DropPlan:
    """List what is the table's own: data files, change data, deletion vectors, the log."""
    with store_errors(table.path):
        found = listing(table.store, table.partition_columns)
    log = sorted(found.log, key=lambda file: file.path)
    entries_newest_first = [file for file in reversed(log) if ".checkpoint" not in file.path]
    checkpoints = [file for file in log if ".checkpoint" in file.path]
    data = (*found.data, *found.changes, *found.vectors, *found.kept)
    own = {companion(file.path) for file in data}
    return DropPlan(
        table.version,
        extent(data_files(table)),
        (*data, *entries_newest_first, *checkpoints),
        (*found.nested, *found.links, *(path for path in found.strange if path not in own)),
        tuple(sorted(table.transactions)),
    )


def run(table: LakeTable, plan: DropPlan) -> int:
    """Delete the files of the plan, then directories that are empty; how many files were deleted."""
    with store_errors(table.path):
        if local_folder(table.store) is not None:
            delete_files(table.store, (companion(file.path) for file in plan.files))
        log = [file.path for file in plan.files if file.path.startswith(f"{LOG}/")]
        delete_files(table.store, (file.path for file in plan.files if not file.path.startswith(f"{LOG}/")))
        # One after the other: a drop that is killed leaves no hole in the log.
        for path in log:
            with suppress(FileNotFoundError):
                table.store.delete_file(path)
        forget_commits(table.store)
        if isinstance(table.store, pafs.SubTreeFileSystem):
            _remove_empty(Path(table.store.base_path))
    return len(plan.files)


def _remove_empty(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False, followlinks=False):
        with suppress(OSError):
            Path(folder).rmdir()
