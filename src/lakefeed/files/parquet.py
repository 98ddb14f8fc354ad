"""Parquet files of one table: rolling, naming, and the list of what was written."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.columns.mapping import has_mapping, is_mapped, physical_name, physical_schema, relabelled
from lakefeed.columns.staged import STAGED_FOLDER, staged_schema
from lakefeed.files import WrittenFile
from lakefeed.files.names import Serial, file_name
from lakefeed.files.partitions import Values, directory, split_by_partition
from lakefeed.files.statistics import FileStatistics, Leaf, indexed_leaves
from lakefeed.files.uploads import Uploads
from lakefeed.stores import local_folder, store_errors, store_path, sync

_ROW_GROUP_ROWS = 1_000_000
_ROW_GROUP_BYTES = 64 * 2**20
# Rows of many partitions wait in one buffer: a larger one gives each of them larger row groups. Rows that are
# sorted wait there as well: all that are sorted together.
_GATHERED_BYTES = 128 * 2**20
_OPEN_FILES = 64
_FULL_ENOUGH = 0.95
_FEWEST_ROWS = 100
_SAMPLE_ROWS = 5_000


@dataclass(frozen=True)
class FileTarget:
    """What the files of a table look like. Picklable: made on the driver, used on workers.

    `schema` is the table's, partition columns included; `properties` are the table's properties.
    """

    schema: pa.Schema
    partition_columns: tuple[str, ...] = ()
    compression: str = "zstd"
    target_file_size: int = 128 * 2**20
    max_rows_per_file: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    sync: bool = True
    """Whether files on a disk are to outlive a power cut before they are returned."""
    sort_by: tuple[str, ...] = ()
    """Columns that the rows of each file are sorted by, nulls last."""
    row_group_bytes: int | None = None
    """Rows wait in memory until they are so many bytes. None: as many as make good row groups."""
    folder: str = ""
    """Where the files lie in the table, ending in a slash."""
    prefix: str = "part"
    naming: str = "uuid"
    """The strategy of `lakefeed.files.names`."""


def staged_target(target: FileTarget) -> FileTarget:
    """How changes of a table are staged: with all its columns, for the driver alone, and not for long."""
    return replace(
        target,
        schema=staged_schema(target.schema),
        partition_columns=(),
        max_rows_per_file=None,
        properties={"delta.dataSkippingNumIndexedCols": "0"},
        # What a power cut takes is read again: its positions have not been committed.
        sync=False,
        sort_by=(),
        folder=STAGED_FOLDER,
    )


class TableWriter:
    """Writes rows into files of one table, which nobody sees until they are committed. Used by one thread.

    Rows wait in memory until they fill a row group, so that a small batch makes one file for each partition
    that it has rows of, and no more. After an exception, call `abort`.
    """

    def __init__(self, store: pafs.FileSystem, target: FileTarget, serial: Serial | None = None) -> None:
        """Nothing is written or created before there are rows."""
        assert not is_mapped(target.properties) or has_mapping(target.schema), "the columns have no mapping"
        self._store = store
        self._target = target
        self._serial = serial or Serial()
        self._path = store_path(store)
        self._schema = _written(target.schema)
        self._folders = [physical_name(target.schema.field(name)) for name in target.partition_columns]
        gathers = target.partition_columns or target.sort_by
        self._limit = target.row_group_bytes or (_GATHERED_BYTES if gathers else _ROW_GROUP_BYTES)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self.waiting_bytes = 0
        self._layout: _Layout | None = None
        self._open: OrderedDict[Values, _OpenFile] = OrderedDict()
        self._made: list[str] = []
        self._grown: set[Path] = set()
        """Directories that have got others inside."""
        self._closed: list[WrittenFile] = []
        self._uploads = Uploads()

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows that have the table's schema."""
        if not rows.num_rows:
            return
        if rows.schema.names != self._schema.names:
            rows = rows.select(self._schema.names)
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self.waiting_bytes += rows.nbytes
        if self.waiting_bytes >= self._limit or self._waiting_rows >= _ROW_GROUP_ROWS:
            self.flush()

    def close(self) -> list[WrittenFile]:
        """Finish every file and return what was written; nothing when there were no rows."""
        self.flush()
        while self._open:
            self._close_file(next(iter(self._open)))
        with store_errors(self._path):
            self._uploads.wait()
        self._sync()
        return list(self._closed)

    def abort(self) -> None:
        """Delete what was written. Never raises: what stays behind is in no table, and vacuum removes it."""
        self._waiting, self._waiting_rows, self.waiting_bytes = [], 0, 0
        for file in self._open.values():
            file.drop()
        self._open.clear()
        with suppress(Exception):
            self._uploads.wait()
        for path in self._made:
            with suppress(Exception):
                self._store.delete_file(path)
        self._made.clear()
        self._closed.clear()

    def _sync(self) -> None:
        """Let the files be there for good, and every directory that leads to them, before anybody knows them.

        An object store has confirmed each upload already.
        """
        folder = local_folder(self._store)
        if folder is None or not self._target.sync or not self._closed:
            return
        paths = [folder / file.path for file in self._closed]
        with store_errors(self._path):
            sync(paths)
            above = (each for path in paths for each in path.parents)
            sync({each for each in above if each.is_relative_to(folder)} | self._grown)

    def flush(self) -> None:
        """Write the rows that wait as row groups, whatever their number."""
        if not self._waiting:
            return
        rows = pa.Table.from_batches([_typed(batch, self._schema) for batch in self._waiting])
        self._waiting, self._waiting_rows, self.waiting_bytes = [], 0, 0
        if self._target.sort_by:
            rows = rows.combine_chunks().sort_by([(name, "ascending") for name in self._target.sort_by])
        self._layout = self._layout or _Layout.of(rows, self._target)
        with store_errors(self._path):
            for values, part in split_by_partition(rows, self._target.partition_columns):
                self._append(values, part)
                if self._target.sort_by:
                    # What is sorted next belongs in a file of its own.
                    self._close_file(values)

    def _append(self, values: Values, rows: pa.Table) -> None:
        """Write the rows of one partition, beginning a new file wherever one is full."""
        while rows.num_rows:
            file = self._file(values)
            count = min(rows.num_rows, file.room())
            file.append(rows.slice(0, count))
            rows = rows.slice(count)
            if file.is_full():
                self._close_file(values)

    def _file(self, values: Values) -> _OpenFile:
        """The open file of a partition, or a new one instead of the one that was used least recently."""
        if values not in self._open:
            if len(self._open) >= _OPEN_FILES:
                self._close_file(next(iter(self._open)))
            name = file_name(self._target.prefix, self._target.naming, len(self._made), self._serial)
            path = self._target.folder + directory(self._folders, values) + name
            self._made.append(path)
            assert self._layout is not None
            self._open[values] = _OpenFile(
                path, _create(self._store, path, self._grown), self._layout, self._target
            )
        self._open.move_to_end(values)
        return self._open[values]

    def _close_file(self, values: Values) -> None:
        file = self._open.get(values)
        if file is None:
            return
        with store_errors(self._path):
            stats = file.close(self._uploads if local_folder(self._store) is None else None)
        del self._open[values]
        named = dict(zip(self._target.partition_columns, values, strict=True))
        self._closed.append(WrittenFile(file.path, file.size, named, stats, file.rows))


def write_files(
    store: pafs.FileSystem, target: FileTarget, pieces: Iterable[pa.Table], serial: Serial | None = None
) -> list[WrittenFile]:
    """Write rows piece by piece into new files; a failure leaves nothing behind."""
    writer = TableWriter(store, target, serial)
    try:
        for rows in pieces:
            for batch in rows.combine_chunks().to_batches():
                writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


@dataclass
class _Layout:
    """What the files of one writer have in common, decided by its first rows."""

    schema: pa.Schema
    """The columns as files have them."""
    leaves: list[Leaf]
    dictionaries: list[str]
    encodings: dict[str, str]
    bytes_per_row: float
    """What a row takes in a file: at first what it takes in memory, then what the last row group showed."""

    @classmethod
    def of(cls, rows: pa.Table, target: FileTarget) -> _Layout:
        rows = rows.drop_columns(list(target.partition_columns))
        leaves = indexed_leaves(rows.schema, target.properties)
        stored = relabelled(rows, physical_schema(rows.schema))
        return cls(stored.schema, leaves, *_encodings(stored), max(1.0, rows.nbytes / rows.num_rows))


class _OpenFile:
    """A file that is being written."""

    def __init__(self, path: str, sink: pa.NativeFile, layout: _Layout, target: FileTarget) -> None:
        self.path = path
        self.rows = 0
        self.size = 0
        self._sink = sink
        self._layout = layout
        self._target = target
        self._statistics = FileStatistics(layout.leaves)
        self._writer = pq.ParquetWriter(
            sink,
            layout.schema,
            compression=target.compression,
            # Level 1 is about as fast as snappy and half the size; higher levels cost more than they save.
            compression_level=1 if target.compression == "zstd" else None,
            use_dictionary=layout.dictionaries or False,
            column_encoding=layout.encodings or None,
            store_schema=False,
            store_decimal_as_integer=True,
        )

    def room(self) -> int:
        """How many rows fit: exactly for `max_rows_per_file`, by experience for `target_file_size`."""
        free, limit = self._target.target_file_size - self.size, self._target.max_rows_per_file
        fitting = max(_FEWEST_ROWS, int(free / self._layout.bytes_per_row))
        return fitting if limit is None else min(fitting, limit - self.rows)

    def append(self, rows: pa.Table) -> None:
        """Write one row group."""
        self._statistics.see(rows)
        stored = relabelled(rows, self._layout.schema)
        self._writer.write_table(stored, row_group_size=_ROW_GROUP_ROWS)
        size = self._sink.tell()
        self._layout.bytes_per_row = max(0.01, (size - self.size) / rows.num_rows)
        self.size = size
        self.rows += rows.num_rows

    def is_full(self) -> bool:
        """Whether the next rows belong in another file."""
        large = self.size >= self._target.target_file_size * _FULL_ENOUGH
        return large or self.rows == self._target.max_rows_per_file

    def close(self, uploads: Uploads | None = None) -> str:
        """Write the footer; the statistics. With `uploads`, the rest is sent beside what follows."""
        self._writer.close()
        self.size = self._sink.tell()
        if uploads is None:
            self._sink.close()
        else:
            uploads.add(self._sink.close)
        return self._statistics.to_json(self._writer.writer.metadata)

    def drop(self) -> None:
        """Let go of a file that nobody wants any more."""
        # Without this, the writer would try to write the footer when it is collected.
        self._writer.is_open = False
        with suppress(Exception):
            self._sink.close()


def _create(store: pafs.FileSystem, path: str, grown: set[Path]) -> pa.NativeFile:
    """Open a new file; directories are made when the first file in them shows that they are missing.

    Those that get others inside are added to `grown`.
    """
    try:
        return store.open_output_stream(path)
    except FileNotFoundError:
        folder = local_folder(store)
        if folder is None:
            raise
        above = (folder / path).parents
        grown |= {each.parent for each in above if not each.exists()}
        above[0].mkdir(parents=True, exist_ok=True)
        return store.open_output_stream(path)


def _written(schema: pa.Schema) -> pa.Schema:
    """The columns that files have: without those of type void, as Spark leaves them out.

    Readers take null for a column that a file lacks, and some refuse the type that Parquet has for it.
    """
    return pa.schema([field for field in schema.remove_metadata() if not pa.types.is_null(field.type)])


def _typed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns under the table's schema, which also says what is nullable."""
    return pa.RecordBatch.from_arrays(rows.columns, schema=schema)


def _encodings(rows: pa.Table) -> tuple[list[str], dict[str, str]]:
    """Which columns get a dictionary, and which of the others are stored as differences.

    A dictionary of values that do not repeat costs time and space; differences of whole numbers cost little.
    """
    dictionaries: list[str] = []
    encodings: dict[str, str] = {}
    sample = rows.slice(0, _SAMPLE_ROWS)
    for column, described in zip(sample.columns, rows.schema, strict=True):
        if pa.types.is_nested(described.type):
            dictionaries += _leaf_names(described.name, described.type)
        elif pa.types.is_boolean(described.type):
            continue
        elif pc.count_distinct(column).as_py() <= sample.num_rows // 2:
            dictionaries.append(described.name)
        elif pa.types.is_integer(described.type) or pa.types.is_temporal(described.type):
            encodings[described.name] = "DELTA_BINARY_PACKED"
    return dictionaries, encodings


def _leaf_names(name: str, kind: pa.DataType) -> Iterator[str]:
    """The columns of a nested type by the names that they have in a Parquet file."""
    if pa.types.is_struct(kind):
        for child in kind.fields:
            yield from _leaf_names(f"{name}.{child.name}", child.type)
    elif pa.types.is_map(kind):
        yield from _leaf_names(f"{name}.key_value.key", kind.key_type)
        yield from _leaf_names(f"{name}.key_value.value", kind.item_type)
    elif pa.types.is_nested(kind):
        yield from _leaf_names(f"{name}.list.element", kind.value_type)
    elif not pa.types.is_boolean(kind):
        yield name
