"""The data files of a table's newest version: listed with what the log says, checked, opened, read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from shlex import quote as shell_quote
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lakefeed.columns.mapping import is_mapped, mapped_as, physical_name, present_names
from lakefeed.columns.partition_values import value_of, value_text
from lakefeed.columns.views import without_views
from lakefeed.errors import TableError, UsageError
from lakefeed.stores import store_errors, store_path
from lakefeed.tables.file_rows import conformed, damaged, named_partition, opened
from lakefeed.tables.log.data_file import DataFile, Partition, stored_paths
from lakefeed.tables.log.log import Snapshot
from lakefeed.tables.log.roaring import Positions
from lakefeed.tables.log.vector import read_vector
from lakefeed.tables.log.write import UNQUOTED
from lakefeed.tables.table import LakeTable
from lakefeed.text import counted, first_line, listed

_PREFIX = "partition."
_STATISTICS = ("min", "max", "null_count")
_TEXT = re.compile(r"'(?:[^']|'')*'")
_LAYERS = re.compile(r"^((External|Generic( DeltaTable)?|Schema|sql parser) error: )+")
_BATCH_ROWS = 100_000


class MissingFile(TableError):
    """A file that the log names is not in the store."""

    def __init__(self, store: pafs.FileSystem, gone: Sequence[str]) -> None:
        path = store_path(store)
        more = f", and {counted(len(gone) - 1, 'file')} more" if len(gone) > 1 else ""
        super().__init__(
            f"{path}: {gone[0]}{more}: the log names it, and it is not there. Nothing was changed.\n"
            "Bring it back from a backup, or go back to a version without it: "
            f"lakefeed table history {shell_quote(path)}"
        )


def data_files(table: LakeTable, where: str | None = None) -> list[DataFile]:
    """The files of the newest version; with `where`, those that may hold such rows, as statistics show."""
    if table.is_emptied:
        return []
    files = _normal(table, table.live()) if table.has_vectors else _files_of(table.delta)
    if where is None:
        return files
    with reading(where):
        uris = table.delta.file_uris(file_pruning_predicate=where)
    wanted = {_relative(uri, table.delta.table_uri) for uri in uris}
    return [file for file in files if file.path in wanted]


def files_of(actions: pa.Table, partition_columns: Sequence[str]) -> list[DataFile]:
    """The files that `add_actions` tells of."""
    columns = ["path", "size_bytes", "modification_time", "num_records"]
    columns += [_PREFIX + name for name in partition_columns]
    known = [name for name in columns if name in actions.schema.names]
    return [_file(row, partition_columns) for row in actions.select(known).to_pylist()]


def files_at(table: LakeTable, version: int) -> list[DataFile]:
    """The files of an older version. Raises TableError where the log no longer has them."""
    if not table.has_vectors:
        return _files_of(table.at(version))
    return _normal(table, table.log().snapshot(version))


def _files_of(delta: DeltaTable) -> list[DataFile]:
    """The files of a snapshot that has no deletion vectors: delta-rs does not tell of them."""
    names = list(delta.metadata().partition_columns)
    columns = ["path", "size_bytes", "modification_time", "num_records", *(_PREFIX + name for name in names)]
    return files_of(add_actions(delta, columns), names)


def named_files(table: LakeTable, files: Iterable[DataFile]) -> list[DataFile]:
    """Files that the log told of, with their partition values under the names of the columns."""
    return [replace(file, partition=named_partition(file.partition, table.schema)) for file in files]


def with_vectors(table: LakeTable, files: Sequence[DataFile]) -> list[DataFile]:
    """Files that delta-rs told of, with what only the log tells: deletion vectors, statistics as text."""
    if not table.has_vectors:
        return list(files)
    known = table.live().files
    return [replace(known[file.path], partition=file.partition) for file in files]


def add_actions(delta: DeltaTable, columns: Iterable[str] | None = None) -> pa.Table:
    """What the log says about each file, statistics included, in flat columns."""
    with store_errors(delta.table_uri):
        # `pa.table` would import pandas to see whether it is given a data frame.
        table = pa.RecordBatchReader.from_stream(delta.get_add_actions(flatten=True)).read_all()
        if is_mapped(delta.metadata().configuration):
            table = _named_statistics(table, pa.schema(delta.schema().to_arrow()))
    return (
        table if columns is None else table.select([name for name in columns if name in table.schema.names])
    )


def _named_statistics(actions: pa.Table, columns: pa.Schema) -> pa.Table:
    """The same with the statistics under the names of the columns; partition values are so already."""
    names = dict(_physical_paths(columns))
    made = []
    for name in actions.schema.names:
        kind, _, path = name.partition(".")
        made.append(f"{kind}.{names.get(path, path)}" if kind in _STATISTICS else name)
    return actions.rename_columns(made)


def _physical_paths(
    fields: Iterable[pa.Field], stored: str = "", named: str = ""
) -> Iterator[tuple[str, str]]:
    """The paths of columns, and of the fields of structs, by those that the log has."""
    for field in fields:
        path = f"{stored}{physical_name(field)}", f"{named}{field.name}"
        yield path
        if pa.types.is_struct(field.type):
            yield from _physical_paths(field.type, f"{path[0]}.", f"{path[1]}.")


def refuse_respelled(table: LakeTable, files: Iterable[DataFile]) -> None:
    """Raise TableError when delta-rs would write the path of a file otherwise than the log has it.

    Then it would remove another name than the one that was added, and the file would stay. Spark leaves
    letters beyond ASCII in paths as they are, delta-rs encodes them.
    """
    for file in files:
        if quote(file.path, safe=UNQUOTED) != file.logged:
            raise TableError(
                f"{table.path}: the log spells the path {file.logged} in a way that cannot be kept here.\n"
                "Use the engine that wrote it, such as Spark."
            )


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
            f"here; {table.path} has {known}."
        )


def refuse_missing(store: pafs.FileSystem, files: Iterable[DataFile]) -> None:
    """Raise MissingFile when some of the files are not there; asks the store about each."""
    wanted = stored_paths(files)
    infos = store.get_file_info(wanted) if wanted else []
    gone = [path for path, info in zip(wanted, infos, strict=True) if info.type != pafs.FileType.File]
    if gone:
        raise MissingFile(store, gone)


def read_rows(
    table: LakeTable, files: Iterable[DataFile], schema: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """Every row of some files of the table, in their order, with the table's columns and types, or others.

    Rows that a deletion vector deletes are left out. Raises MissingFile, or TableError for a file that is no
    Parquet.
    """
    wanted = table.schema if schema is None else mapped_as(schema, table.schema)
    for file in files:
        yield from read_file(table.store, file, wanted, pruned=schema is not None)


def read_file(
    store: pafs.FileSystem, file: DataFile, wanted: pa.Schema, *, pruned: bool = False
) -> Iterator[pa.RecordBatch]:
    """The same for one file, on a worker too; with `pruned`, no other columns of the file are read."""
    with store_errors(store_path(store)), open_data(store, file.path) as stream:
        reader, use_threads = opened(stream, file.size)
        columns = present_names(wanted, reader.schema_arrow) if pruned else None
        batches = reader.iter_batches(batch_size=_BATCH_ROWS, columns=columns, use_threads=use_threads)
        for batch in undeleted(store, file, batches):
            yield conformed(batch, wanted, file.partition)


def undeleted(
    store: pafs.FileSystem, file: DataFile, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """All rows of a file in their order, without those that its deletion vector deletes."""
    return iter(batches) if file.vector is None else without_rows(batches, read_vector(store, file.vector))


def without_rows(batches: Iterable[pa.RecordBatch], positions: Positions) -> Iterator[pa.RecordBatch]:
    """All rows of a file in their order, without those at some positions."""
    at = 0
    for batch in batches:
        first, end = np.searchsorted(positions, (at, at + batch.num_rows))
        if first < end:
            kept = np.ones(batch.num_rows, np.bool_)
            kept[positions[first:end] - at] = False
            yield without_views(batch).filter(pa.array(kept))
        else:
            yield batch
        at += batch.num_rows


def stored_row_count(store: pafs.FileSystem, file: DataFile) -> int:
    """All rows that are in a file, deleted ones as well."""
    if file.rows is not None:
        return file.rows + file.deleted
    with open_data(store, file.path) as stream:
        return int(pq.ParquetFile(stream).metadata.num_rows)


def codec_of(store: pafs.FileSystem, files: Iterable[DataFile]) -> str:
    """The compression of the first of the files, by its footer; files are written again as they were."""
    first = next(iter(files), None)
    if first is None:
        return "ZSTD"
    with open_data(store, first.path) as stream:
        footer = pq.ParquetFile(stream).metadata
        known = footer.num_row_groups and footer.num_columns
        return str(footer.row_group(0).column(0).compression) if known else "ZSTD"


@contextmanager
def open_data(store: pafs.FileSystem, path: str) -> Iterator[pa.NativeFile]:
    """Open a file of the table. Raises MissingFile, and TableError for what Arrow says of a damaged one."""
    try:
        stream = store.open_input_file(path)
    except FileNotFoundError:
        raise MissingFile(store, [path]) from None
    try:
        with stream:
            yield stream
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise damaged(store, path, f"cannot be read: {first_line(error)}") from error


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn what delta-rs says about a condition that it cannot read into UsageError."""
    try:
        yield
    except (DeltaError, ValueError) as error:
        text = " ".join(line.strip() for line in str(error).splitlines()) or "no reason given"
        # Without the layers of delta-rs that have passed it on.
        raise UsageError(
            f"--where {where!r} cannot be read: {_LAYERS.sub('', text)[:200]}\n"
            "Write a SQL condition on the table's columns, such as \"day >= '2026-11-01' AND price > 10\"."
        ) from error


def _normal(table: LakeTable, state: Snapshot) -> list[DataFile]:
    """The files with their partition values in the order of the columns, and as they are written here."""
    names, kinds = table.partition_columns, table.schema
    if not names:
        return list(state.files.values())
    stored_names = {name: physical_name(kinds.field(name)) for name in names}
    known: dict[Partition, Partition] = {}
    found = []
    for file in state.files.values():
        if file.partition not in known:
            values = dict(file.partition)
            known[file.partition] = tuple(
                (name, value_text(value_of(values.get(stored), kinds.field(name).type).as_py()))
                for name, stored in stored_names.items()
            )
        found.append(replace(file, partition=known[file.partition]))
    return found


def _file(row: Mapping[str, Any], names: Sequence[str]) -> DataFile:
    return DataFile(
        unquote(row["path"]),
        row["path"],
        row["size_bytes"],
        row.get("num_records"),
        tuple((name, value_text(row.get(_PREFIX + name))) for name in names),
        row["modification_time"],
    )


def _relative(uri: str, root: str) -> str:
    # On a disk, the table is given as a URL and its files are given as paths.
    folder = unquote(urlsplit(root).path) if root.startswith("file:") else root
    return uri.removeprefix(folder.rstrip("/")).lstrip("/")
