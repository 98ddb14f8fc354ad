"""A large batch in ranges of its keys: one range is in memory at a time, the others are on the driver's disk.

Changes of one key are in one range, so each range is decided by itself. All ranges become one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefeed.columns.mapping import present_names, unmapped
from lakefeed.columns.staged import OP, STAGED, TRUNCATE, staged_schema
from lakefeed.files import WrittenFile
from lakefeed.stores import store_errors
from lakefeed.tables.data_files import open_data
from lakefeed.tables.file_rows import conformed
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.keys import Numbers, in_one_piece, ranks, taken

RANGE_BYTES = 32 * 2**20
"""Bytes of changes that are decided at a time."""
_COMPRESSION = 20
"""Changes take at most about so many times the bytes of their files."""
_SAMPLE_ROWS = 20_000
_MOST_RANGES = 256
"""Each range has an open file while changes are split."""
_READ_ROWS = 32_000
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class SpilledRows:
    """Tables of one schema, each under a number, in files of a temporary folder."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder, self._schema = folder, schema
        self._writers: dict[int, pa.ipc.RecordBatchFileWriter] = {}
        self._written: set[int] = set()

    def add(self, number: int, rows: pa.Table) -> None:
        """Keep rows, besides those that the number has."""
        with store_errors(str(self._folder)):
            if number not in self._writers:
                sink = str(self._folder / f"{number}.arrow")
                self._writers[number] = pa.ipc.new_file(sink, self._schema, options=_COMPRESSED)
            self._writers[number].write_table(rows, max_chunksize=_READ_ROWS)

    def close(self) -> None:
        """End the writing; rows are read only after that."""
        with store_errors(str(self._folder)):
            while self._writers:
                number, writer = self._writers.popitem()
                writer.close()
                self._written.add(number)

    def rows(self, number: int) -> pa.Table:
        """The rows of a number."""
        if number not in self._written:
            return self._schema.empty_table()
        path = str(self._folder / f"{number}.arrow")
        with store_errors(str(self._folder)), pa.OSFile(path) as stream:
            return in_one_piece(pa.ipc.open_file(stream).read_all())


@contextmanager
def spilled(schema: pa.Schema) -> Iterator[SpilledRows]:
    """Rows on the driver's disk until the end of the block."""
    with TemporaryDirectory(prefix="lakefeed-", ignore_cleanup_errors=True) as folder:
        yield SpilledRows(Path(folder), schema)


def range_count(table: LakeTable, files: Sequence[WrittenFile], limit: int) -> int:
    """How many ranges the changes in these staged files are decided in."""
    rows = sum(file.rows for file in files)
    if not rows or sum(file.size for file in files) * _COMPRESSION < limit:
        # Not worth a request to a store.
        return 1
    # Of the largest file, the first rows tell the size of all.
    largest = max(files, key=lambda file: file.rows)
    sample = next(_batches(table, [largest], staged_schema(table.schema)))
    size = rows * int(sample.nbytes) // max(1, int(sample.num_rows))
    return min(_MOST_RANGES, max(1, -(-size // limit)))


def staged_batches(table: LakeTable, files: Sequence[WrittenFile]) -> Iterator[pa.Table]:
    """The changes of a batch, in no order, some thousands at a time."""
    for batch in _batches(table, files, staged_schema(table.schema)):
        yield pa.Table.from_batches([batch])


class KeyRanges:
    """The bounds between ranges of keys that have about as many changes each."""

    def __init__(
        self, table: LakeTable, files: Sequence[WrittenFile], keys: Sequence[str], count: int
    ) -> None:
        self._keys = list(keys)
        self.truncates = False
        """Whether some changes are truncations, which have no key."""
        own = [unmapped(table.schema).field(name).with_nullable(True) for name in keys]
        step = max(1, sum(file.rows for file in files) // _SAMPLE_ROWS)
        parts = [pa.schema(own).empty_table()]
        start = 0
        for batch in _batches(table, files, pa.schema([*own, STAGED.field(OP)])):
            keyed = pc.fill_null(pc.not_equal(batch.column(OP), TRUNCATE), True)
            self.truncates |= not pc.all(keyed).as_py()
            rows = pa.Table.from_batches([batch]).filter(keyed).drop_columns([OP])
            parts.append(rows.take(pa.array(np.arange(-start % step, rows.num_rows, step))))
            start += rows.num_rows
        sample = pa.concat_tables(parts).combine_chunks()
        (rank,) = ranks(sample)
        order = np.argsort(rank, kind="stable")
        edges = order[np.arange(1, count) * len(order) // count] if len(order) else order
        self._bounds = taken(sample, edges[np.unique(rank[edges], return_index=True)[1]])

    def __len__(self) -> int:
        """How many ranges there are."""
        return int(self._bounds.num_rows) + 1

    def split(self, batches: Iterable[pa.Table], changes: SpilledRows) -> None:
        """Put changes, none of which is a truncation, under the numbers of their ranges."""
        for rows in batches:
            numbers = self.of(rows)
            for number in np.unique(numbers).tolist():
                changes.add(number, rows.filter(pa.array(numbers == number)))

    def of(self, rows: pa.Table) -> Numbers:
        """The range of the key of each row."""
        own, bounds = ranks(rows.select(self._keys), self._bounds)
        found: Numbers = np.searchsorted(bounds, own, side="right")
        return found


def _batches(table: LakeTable, files: Sequence[WrittenFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file in files:
        with store_errors(table.path), open_data(table.store, file.path) as stream:
            reader = pq.ParquetFile(stream)
            names = present_names(schema, reader.schema_arrow)
            for batch in reader.iter_batches(_READ_ROWS, columns=names, use_threads=False):
                yield conformed(batch, schema)
