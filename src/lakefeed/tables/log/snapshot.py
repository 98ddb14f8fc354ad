"""The files that a table's newest version consists of, with what the log says about each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from deltalake import DeltaTable

from lakefeed.columns.partition_values import value_text
from lakefeed.errors import TableError, UsageError
from lakefeed.stores import store_errors
from lakefeed.tables.log.write import UNQUOTED
from lakefeed.tables.operations.operation import Extent, place, reading
from lakefeed.tables.table import LakeTable
from lakefeed.text import listed

Partition = tuple[tuple[str, str | None], ...]
"""The values of the partition columns, as text, in the order of the columns; empty without any."""

_PREFIX = "partition."
_TEXT = re.compile(r"'(?:[^']|'')*'")


@dataclass(frozen=True)
class DataFile:
    """One file of a snapshot. `path` is relative to the table and as it lies in the store."""

    path: str
    logged: str
    """The path as the log has it: URL-encoded."""
    size: int
    rows: int | None
    partition: Partition
    modified: int
    """Milliseconds since 1970."""


def data_files(delta: DeltaTable, where: str | None = None) -> list[DataFile]:
    """The files of a snapshot; with `where`, those that may hold such rows, as far as statistics tell."""
    names = list(delta.metadata().partition_columns)
    files = [_file(row, names) for row in add_actions(delta, _plain(delta, names)).to_pylist()]
    if where is None:
        return files
    with reading(where):
        uris = delta.file_uris(file_pruning_predicate=where)
    wanted = {_relative(uri, delta.table_uri) for uri in uris}
    return [file for file in files if file.path in wanted]


def add_actions(delta: DeltaTable, columns: Iterable[str] | None = None) -> pa.Table:
    """What the log says about each file, statistics included, in flat columns."""
    with store_errors(delta.table_uri):
        # `pa.table` would import pandas to see whether it is given a data frame.
        table = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
    return (
        table if columns is None else table.select([name for name in columns if name in table.schema.names])
    )


def extent(files: Iterable[DataFile]) -> Extent:
    """How much some files are together."""
    listed_files = list(files)
    rows = [file.rows for file in listed_files]
    total = None if None in rows else sum(row for row in rows if row is not None)
    return Extent(len(listed_files), sum(file.size for file in listed_files), total)


def by_partition(files: Iterable[DataFile]) -> dict[Partition, list[DataFile]]:
    """The files of each partition, oldest partition value first; one group in a table without partitions."""
    groups: dict[Partition, list[DataFile]] = {}
    for file in files:
        groups.setdefault(file.partition, []).append(file)
    return dict(sorted(groups.items(), key=lambda group: [value or "" for _, value in group[0]]))


def refuse_respelled(table: LakeTable, files: Iterable[DataFile]) -> None:
    """Raise TableError when delta-rs would write the path of a file otherwise than the log has it.

    Then it would remove another name than the one that was added, and the file would stay. Spark leaves
    letters beyond ASCII in paths as they are, delta-rs encodes them.
    """
    for file in files:
        if quote(file.path, safe=UNQUOTED) != file.logged:
            raise TableError(
                f"{place(table)}: the log spells the path {file.logged} in a way that cannot be kept here.\n"
                "Use the engine that wrote it, such as Spark."
            )


def partition_text(partition: Partition) -> str:
    """`day=2026-11-15/country=DE`, as people know it from paths."""
    return "/".join(f"{name}={'null' if value is None else value}" for name, value in partition)


def refuse_other_columns(table: LakeTable, where: str) -> None:
    """Raise UsageError when a condition for whole partitions names a column that is not one of theirs."""
    words = {word.lower() for word in re.findall(r"\w+", _TEXT.sub("", where))}
    other = [
        name for name in table.schema.names if name.lower() in words and name not in table.partition_columns
    ]
    if other or not table.partition_columns:
        known = listed(table.partition_columns) if table.partition_columns else "none"
        raise UsageError(
            f"--where {where!r}: files are rewritten by whole partitions, so only partition columns count "
            f"here; {place(table)} has {known}."
        )


def _plain(delta: DeltaTable, names: list[str]) -> list[str]:
    return ["path", "size_bytes", "modification_time", "num_records", *(f"{_PREFIX}{name}" for name in names)]


def _file(row: Mapping[str, Any], names: list[str]) -> DataFile:
    partition = tuple((name, value_text(row.get(f"{_PREFIX}{name}"))) for name in names)
    return DataFile(
        unquote(row["path"]),
        row["path"],
        row["size_bytes"],
        row.get("num_records"),
        partition,
        row["modification_time"],
    )


def _relative(uri: str, root: str) -> str:
    # On a disk, the table is given as a URL and its files are given as paths.
    place = unquote(urlsplit(root).path) if root.startswith("file:") else root
    return uri.removeprefix(place.rstrip("/")).lstrip("/")
