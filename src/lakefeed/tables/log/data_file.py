"""One data file of a table as the log has it, and how much several of them hold together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import orjson

from lakefeed.figures import readable_size
from lakefeed.tables.log.vector import DeletionVector
from lakefeed.text import counted

Partition = tuple[tuple[str, str | None], ...]
"""The values of the partition columns, as text, in the order of the columns; empty without any."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that a version adds, removes or holds. `path` is relative to the table, as in the store."""

    path: str
    logged: str
    """The path as the log has it: URL-encoded."""
    size: int
    rows: int | None
    """Those that a reader sees, without deleted ones; None without statistics."""
    partition: Partition = ()
    modified: int = 0
    """When it was written, of a removed file when it was removed; milliseconds since 1970."""
    data_change: bool = True
    """Whether its rows come or go with it: a compaction changes files only."""
    vector: DeletionVector | None = None
    """Which of its rows are deleted."""
    stats: str | None = field(default=None, repr=False, compare=False)
    """Its statistics as the log has them."""

    @property
    def deleted(self) -> int:
        """How many of its rows are deleted and still in it."""
        return self.vector.cardinality if self.vector else 0

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> DataFile:
        """The file of an `add`, `remove` or `cdc` action."""
        stats = action.get("stats")
        records = orjson.loads(stats).get("numRecords") if stats else None
        vector = DeletionVector.of(action.get("deletionVector"))
        return cls(
            unquote(action["path"]),
            action["path"],
            action.get("size") or 0,
            records - vector.cardinality if vector and records is not None else records,
            tuple(dict(action.get("partitionValues") or ()).items()),
            action.get("modificationTime") or action.get("deletionTimestamp") or 0,
            action.get("dataChange", True),
            vector,
            stats,
        )


@dataclass(frozen=True)
class Extent:
    """How much there is of something. `rows` is None where a file does not say how many it has."""

    files: int = 0
    bytes: int = 0
    rows: int | None = 0

    def __add__(self, other: Extent) -> Extent:
        rows = None if self.rows is None or other.rows is None else self.rows + other.rows
        return Extent(self.files + other.files, self.bytes + other.bytes, rows)

    def __str__(self) -> str:
        rows = "" if self.rows is None else f", {counted(self.rows, 'row')}"
        return f"{counted(self.files, 'file')}, {readable_size(self.bytes)}{rows}"


def extent(files: Iterable[DataFile]) -> Extent:
    """How much some files are together."""
    some = list(files)
    return Extent(len(some), sum(file.size for file in some), row_count(some))


def row_count(files: Iterable[DataFile | None]) -> int | None:
    """The rows of some files together; None where one is unknown or has no statistics."""
    total = 0
    for file in files:
        if file is None or file.rows is None:
            return None
        total += file.rows
    return total


def stored_paths(files: Iterable[DataFile]) -> list[str]:
    """What must be in the store for these files to be read: themselves, and their deletion vectors."""
    some = list(files)
    vectors = {file.vector.path for file in some if file.vector}
    return [*(file.path for file in some), *sorted(path for path in vectors if path)]


def small_below(target_size: int) -> int:
    """The size below which a file counts as small: half of what files are meant to have."""
    return target_size // 2


def by_partition(files: Iterable[DataFile]) -> dict[Partition, list[DataFile]]:
    """The files of each partition, oldest partition value first; one group in a table without partitions."""
    groups: dict[Partition, list[DataFile]] = {}
    for file in files:
        groups.setdefault(file.partition, []).append(file)
    return dict(sorted(groups.items(), key=lambda group: [value or "" for _, value in group[0]]))


def partition_text(partition: Partition) -> str:
    """`day=2026-11-15/country=DE`, as people know it from paths."""
    return "/".join(f"{name}={'null' if value is None else value}" for name, value in partition)
