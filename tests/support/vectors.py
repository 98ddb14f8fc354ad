"""Deletion vectors in tables of tests: rows deleted without a JVM, in an entry like that of a write mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lakefeed.tables.allow_vectors import allow_vectors
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.roaring import NONE
from lakefeed.tables.log.vector import read_vector, union, write_vectors
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.mode import Change, NewEntry
from support.delta_tables import open_any


def allow(path: Path) -> None:
    """Let rows of a table be deleted in deletion vectors."""
    allow_vectors(open_any(path), {"kind": "test"})


def mark(path: Path, chosen: Callable[[LakeTable], Mapping[str, Sequence[int]]]) -> int:
    """Delete rows by their places in files, as `chosen` says by path; the version."""
    table = open_any(path)

    class Marking:
        def check(self, shape: Any, path: str) -> None: ...
        def landed(self, entry: NewEntry) -> None: ...
        def entry(self, table: LakeTable, change: Change) -> NewEntry:
            wanted = chosen(table)
            files = [file for file in data_files(table) if file.path in wanted]
            bitmaps = [
                union(
                    read_vector(table.store, file.vector) if file.vector else NONE,
                    np.array(wanted[file.path], np.int64),
                )
                for file in files
            ]
            vectors = write_vectors(table.store, bitmaps)
            marked = list(zip(files, vectors, strict=True))
            return NewEntry([], {}, change.commit_info, marked=marked, blind=False)

    return commit(table, Change([], {}, {}, {"kind": "test"}), Marking(), retries=0).version


def mark_everywhere(path: Path, places: Sequence[int]) -> int:
    """Delete the rows at these places of every file."""
    return mark(path, lambda table: {file.path: places for file in data_files(table)})
