"""Replacement: the rows that meet a condition give way to rows from elsewhere, in one commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from lakefeed.columns.column_types import type_text
from lakefeed.errors import TableError, UsageError
from lakefeed.stores import delta_options, open_store, store_errors
from lakefeed.tables.data_files import codec_of, data_files
from lakefeed.tables.log.data_file import Extent, extent
from lakefeed.tables.log.listing import listing
from lakefeed.tables.operations.delete import count_rows, touched_files
from lakefeed.tables.operations.operation import CommitInfo, Report, change
from lakefeed.tables.rewrite.feeding import feeding
from lakefeed.tables.rewrite.unwritable import writable
from lakefeed.tables.table import LakeTable
from lakefeed.text import counted, listed

_BATCH_ROWS = 100_000


@dataclass(frozen=True)
class Rows:
    """Rows that lie elsewhere, in a Delta table or in Parquet files; read anew each time."""

    path: str
    schema: pa.Schema
    count: int
    _delta: DeltaTable | None
    _store: pafs.FileSystem
    _files: tuple[str, ...] = ()

    @classmethod
    def at(cls, path: str, storage: Mapping[str, str]) -> Rows:
        """The rows of a Delta table, of one Parquet file, or of all Parquet files below a directory."""
        single = path.endswith(".parquet")
        folder, _, name = path.rpartition("/") if single else (path, "", "")
        store = open_store(folder or ".", storage)
        with store_errors(path):
            if not single and (delta := _delta_at(path, storage)):
                count = sum(file.rows or 0 for file in data_files(LakeTable(path, delta, store)))
                return cls(path, pa.schema(delta.schema().to_arrow()), count, delta, store)
            files = (name,) if single else tuple(file.path for file in listing(store, ()).data)
            try:
                footers = [_footer(store, file) for file in files]
            except FileNotFoundError:
                footers = []
        if not footers:
            raise UsageError(f"--from {path}: neither a Delta table nor Parquet files are there.")
        count = sum(footer.num_rows for footer in footers)
        return cls(path, footers[0].schema.to_arrow_schema(), count, None, store, files)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Every row, cast to a schema of the same columns. Raises TableError where a value does not fit."""
        for batch in self._read():
            try:
                columns = [batch.column(field.name).cast(field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
                raise TableError(f"{self.path}: its rows do not fit the table: {error}") from error

    def _read(self) -> Iterator[pa.RecordBatch]:
        with store_errors(self.path):
            if self._delta is not None:
                yield from pa.RecordBatchReader.from_stream(self._delta.scan())
                return
            for file in self._files:
                with self._store.open_input_file(file) as stream:
                    reader = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
                    yield from reader.iter_batches(batch_size=_BATCH_ROWS)


@dataclass(frozen=True)
class ReplacePlan:
    """What a replacement would do; nothing has been changed."""

    version: int
    where: str
    removed_rows: int
    source: Rows
    touched: Extent
    table: Extent
    codec: str


def plan(table: LakeTable, where: str, source: Rows) -> ReplacePlan:
    """Count the rows that would go and those that would come. Raises UsageError when columns differ."""
    touched = touched_files(table, "replace", where)
    _check_columns(table, source)
    removed = count_rows(table, where)
    whole = extent(data_files(table))
    return ReplacePlan(
        table.version, where, removed, source, extent(touched), whole, codec_of(table.store, touched)
    )


def run(table: LakeTable, plan: ReplacePlan, commit_info: CommitInfo) -> Report:
    """Replace in one commit. Raises TableError, and changes nothing, when a new row does not meet `where`."""
    before = extent(data_files(table))
    written = WriterProperties(compression=plan.codec)  # type: ignore[arg-type]
    info = {**commit_info, "where": plan.where, "from": plan.source.path}

    def replace(delta: DeltaTable, properties: CommitProperties) -> None:
        schema = table.schema
        found = writable(table, plan.source.batches(schema), table.partition_columns)
        try:
            with feeding(found, schema) as rows:
                write_deltalake(
                    delta,
                    rows,
                    mode="overwrite",
                    predicate=plan.where,
                    writer_properties=written,
                    commit_properties=properties,
                )
        except DeltaError as error:
            if "failed validation check" not in str(error):
                raise
            raise TableError(
                f"{plan.source.path}: some rows do not meet {plan.where!r}, or a constraint or generated "
                f"column of {table.path}.\nNothing was changed; leave out such rows, or widen --where."
            ) from error

    made = change(table, info, replace, reads=lambda: data_files(table, plan.where))
    return Report("replace", before, extent(data_files(table)), made)


def _delta_at(path: str, storage: Mapping[str, str]) -> DeltaTable | None:
    try:
        return DeltaTable(path, storage_options=delta_options(path, storage))
    except TableNotFoundError:
        return None


def _footer(store: pafs.FileSystem, path: str) -> pq.FileMetaData:
    with store.open_input_file(path) as stream:
        return pq.read_metadata(stream)


def _check_columns(table: LakeTable, source: Rows) -> None:
    have, want = set(source.schema.names), set(table.schema.names)
    if have == want:
        return
    missing, extra = sorted(want - have), sorted(have - want)
    problems = [f"lacks {listed(missing)}"] * bool(missing) + [f"also has {listed(extra)}"] * bool(extra)
    types = ", ".join(f"{field.name} {type_text(field.type)}" for field in list(table.schema)[:8])
    raise UsageError(
        f"--from {source.path} {' and '.join(problems)}; it must have the table's "
        f"{counted(len(want), 'column')}: {types}{' ...' if len(want) > 8 else ''}"
    )
