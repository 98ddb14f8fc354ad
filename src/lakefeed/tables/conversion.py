"""Conversion: a directory of Parquet files becomes a Delta table, where it lies; no file is rewritten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema, convert_to_deltalake

from lakefeed.errors import TableError, UsageError
from lakefeed.pipeline.types import type_text
from lakefeed.pipeline.wording import listed
from lakefeed.stores import delta_options, store_errors
from lakefeed.tables.entries import LOG
from lakefeed.tables.listing import Found, listing
from lakefeed.tables.operation import Account, Extent
from lakefeed.tables.table import commit_properties


@dataclass(frozen=True)
class Plan:
    """What a conversion would do; nothing has been changed."""

    path: str
    files: Extent
    schema: pa.Schema
    """The columns of the files, without those of the directories."""
    partition_by: pa.Schema


def plan(path: str, store: pafs.FileSystem, partition_types: Mapping[str, pa.DataType]) -> Plan:
    """Look at every footer. Raises TableError when files differ in their columns.

    Partition columns come from directories such as `day=2026-11-15`; they are text unless `partition_types`
    says otherwise.
    """
    with store_errors(path):
        if store.get_file_info(LOG).type == pafs.FileType.Directory:
            raise UsageError(f"{path} is a Delta table already: lakefeed table detail {path}")
        names = _partition_names(path, store)
        found = listing(store, names)
        hidden = [name for name in found.strange if name.endswith(".parquet")]
        if hidden or found.nested:
            raise TableError(f"{path}: {[*hidden, *found.nested][0]} lies within; move it away first.")
        if not found.data:
            raise UsageError(f"{path}: there are no Parquet files.")
        schema, rows = _read_footers(path, store, sorted(found.data, key=lambda file: file.path))
    unknown = [name for name in partition_types if name not in names]
    if unknown:
        there = listed(names) if names else "none"
        raise UsageError(f"--partition-by: no directory is named {unknown[0]}=...; there are {there}.")
    partition_by = pa.schema([(name, partition_types.get(name, pa.string())) for name in names])
    total = Extent(len(found.data), sum(file.size for file in found.data), rows)
    return Plan(path, total, schema, partition_by)


def run(plan: Plan, storage: Mapping[str, str], account: Account) -> DeltaTable:
    """Write version 0 of the log, with the statistics that the footers hold; the table that it makes."""
    partitioned = len(plan.partition_by) > 0
    with store_errors(plan.path):
        convert_to_deltalake(
            plan.path,
            partition_by=Schema.from_arrow(plan.partition_by) if partitioned else None,
            partition_strategy="hive" if partitioned else None,
            storage_options=delta_options(plan.path, storage),
            commit_properties=commit_properties({}, account),
        )
        return DeltaTable(plan.path, storage_options=delta_options(plan.path, storage))


def _partition_names(path: str, store: pafs.FileSystem) -> list[str]:
    """The names in the directories on the way to the files, which must be the same for all."""
    ways = {
        tuple(unquote(step.partition("=")[0]) for step in file.path.split("/")[:-1] if "=" in step)
        for file in listing(store, ()).data
    }
    if len(ways) > 1:
        one, other = sorted(ways)[:2]
        raise TableError(
            f"{path}: some files lie in directories of {listed(one)} and others in those of {listed(other)}."
        )
    return list(next(iter(ways), ()))


def _read_footers(path: str, store: pafs.FileSystem, files: list[Found]) -> tuple[pa.Schema, int]:
    first: pa.Schema | None = None
    rows = 0
    for file in files:
        with store.open_input_file(file.path) as stream:
            footer = pq.read_metadata(stream)
        schema = footer.schema.to_arrow_schema().remove_metadata()
        rows += footer.num_rows
        if first is None:
            first = schema
        for field in schema:
            known = first.field(field.name) if field.name in first.names else None
            if known is not None and known.type != field.type:
                raise TableError(
                    f"{path}: column {field.name} is {type_text(known.type)} in {files[0].path} and "
                    f"{type_text(field.type)} in {file.path}.\nWrite the files with one type, then convert."
                )
            if known is None:
                first = first.append(field)
    assert first is not None
    return first, rows
