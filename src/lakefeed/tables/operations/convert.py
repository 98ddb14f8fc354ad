"""Conversion: a directory of Parquet files becomes a Delta table, where it lies; no file is rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from lakefeed.columns.column_types import type_text
from lakefeed.columns.partition_values import NULL_DIRECTORY, value_of, value_text
from lakefeed.errors import Conflict, TableError, UsageError
from lakefeed.files.statistics import footer_statistics
from lakefeed.stores import delta_options, is_locked, open_store, store_errors
from lakefeed.tables.log.data_file import Extent
from lakefeed.tables.log.entry import LOG
from lakefeed.tables.log.listing import ListedFile, listing
from lakefeed.tables.log.mirror import create_mirrored
from lakefeed.tables.operations.operation import CommitInfo
from lakefeed.tables.parquet_columns import columns_of
from lakefeed.tables.table import commit_properties
from lakefeed.text import listed


@dataclass(frozen=True)
class ConvertPlan:
    """What a conversion would do; nothing has been changed."""

    path: str
    files: Extent
    schema: pa.Schema
    """The columns of the files, without those of the directories."""
    partition_by: pa.Schema
    adds: tuple[AddAction, ...]


def plan(path: str, store: pafs.FileSystem, partition_types: Mapping[str, pa.DataType]) -> ConvertPlan:
    """Look at every footer, and at a row of every file.

    Raises TableError, which names the file, for what other readers could not read and where files differ in
    their columns. Partition columns come from directories such as `day=2026-11-15`; they are text unless
    `partition_types` says otherwise.
    """
    with store_errors(path):
        if store.get_file_info(LOG).type == pafs.FileType.Directory:
            raise UsageError(f"{path} is a Delta table already: lakefeed table detail {quote(path)}")
        names = _partition_names(path, store)
        found = listing(store, names)
        hidden = [name for name in found.strange if name.endswith(".parquet")]
        if hidden or found.nested:
            raise TableError(
                f"{path}: {[*hidden, *found.nested][0]} is inside; move it somewhere else first."
            )
        if not found.data:
            raise UsageError(f"{path}: there are no Parquet files.")
    unknown = [name for name in partition_types if name not in names]
    if unknown:
        there = listed(names) if names else "none"
        raise UsageError(f"--partition-by: no directory is named {unknown[0]}=...; there are {there}.")
    partition_by = pa.schema([(name, partition_types.get(name, pa.string())) for name in names])
    schema, rows, adds = pa.schema([]), 0, []
    files = sorted(found.data, key=lambda file: file.path)
    for file in files:
        footer, columns = columns_of(store, file.path)
        schema = _merged(path, schema, columns, files[0].path, file.path)
        rows += footer.num_rows
        values = _partition_values(path, file, partition_by)
        adds.append(AddAction(file.path, file.size, values, file.modified, True, footer_statistics(footer)))
    kept = pa.schema([field for field in schema if field.name not in names])
    if not len(kept):
        raise TableError(f"{path}: the files have no columns but those of the directories.")
    total = Extent(len(files), sum(file.size for file in files), rows)
    return ConvertPlan(path, total, kept, partition_by, tuple(adds))


def run(plan: ConvertPlan, storage: Mapping[str, str], commit_info: CommitInfo) -> DeltaTable:
    """Write version 0 of the log, with the statistics that the footers hold; the table that it makes."""
    store, options = open_store(plan.path, storage), delta_options(plan.path, storage)

    def make(at: str, options: dict[str, str] | None = None) -> None:
        create_table_with_add_actions(
            at,
            Schema.from_arrow(pa.schema([*plan.schema, *plan.partition_by])),
            list(plan.adds),
            "error",
            plan.partition_by.names,
            storage_options=options,
            commit_properties=commit_properties({}, commit_info),
        )

    with store_errors(plan.path):
        try:
            if is_locked(store):
                create_mirrored(store, make)
            else:
                make(plan.path, options)
        except (DeltaError, FileExistsError) as error:
            if isinstance(error, DeltaError) and "already exists" not in str(error):
                raise
            raise Conflict(
                f"{plan.path}: another program has created a table there in the meantime."
            ) from error
        return DeltaTable(plan.path, storage_options=options)


def _partition_names(path: str, store: pafs.FileSystem) -> list[str]:
    """The names in the directories on the way to the files, which must be the same for all."""
    ways = {tuple(name for name, _ in _steps(file)) for file in listing(store, ()).data}
    if len(ways) > 1:
        one, other = sorted(ways)[:2]
        raise TableError(
            f"{path}: some files lie in directories of {_named(one)} and others in those of "
            f"{_named(other)}.\nMove them, so that all have the same."
        )
    return list(next(iter(ways), ()))


def _named(names: Sequence[str]) -> str:
    return listed(names) if names else "no column"


def _steps(file: ListedFile) -> list[tuple[str, str]]:
    """The columns and values in the directories on the way to a file."""
    pairs = (step.partition("=") for step in file.path.split("/")[:-1] if "=" in step)
    return [(unquote(name), unquote(value)) for name, _, value in pairs]


def _partition_values(path: str, file: ListedFile, partition_by: pa.Schema) -> dict[str, str | None]:
    """The values of a file's directories as the log has them, whatever way they are written there."""
    values: dict[str, str | None] = {}
    for name, text in _steps(file):
        kind = partition_by.field(name).type
        try:
            value = value_of(None if text == NULL_DIRECTORY else text, kind).as_py()
        except TableError:
            raise UsageError(
                f"{path}: {file.path}: {text!r} is no {type_text(kind)}.\n"
                f"Give {name} another type in --partition-by, or rename the directory."
            ) from None
        values[name] = value_text(value)
    return values


def _merged(path: str, known: pa.Schema, columns: pa.Schema, first: str, file: str) -> pa.Schema:
    """All columns so far. Raises TableError where two files have one column in two types, or in two cases."""
    folded = {name.casefold(): name for name in known.names}
    for field in columns:
        name = folded.get(field.name.casefold())
        if name is None:
            known = known.append(field)
        elif name != field.name:
            raise TableError(
                f"{path}: {file}: column {field.name} differs from {name} of other files only in case.\n"
                "Write the files with one name, then convert."
            )
        elif known.field(name).type != field.type:
            raise TableError(
                f"{path}: column {field.name} is {type_text(known.field(name).type)} in {first} and "
                f"{type_text(field.type)} in {file}.\nWrite the files with one type, then convert."
            )
    return known
