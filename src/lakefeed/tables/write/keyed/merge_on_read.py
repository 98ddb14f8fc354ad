"""Merge on read: rows that leave a file are marked in its deletion vector, new rows get a file of their own.

No row is copied, so the cost follows the changes and not the files that hold them. Readers merge the two,
and must know deletion vectors: reader version 3 of the Delta protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.tables.data_files import stored_row_count
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.roaring import NONE
from lakefeed.tables.log.vector import DeletionVector, read_vector, union, write_vectors
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.layout import Edit, Written
from lakefeed.tables.write.spread import Spread, in_threads


class MergeOnRead:
    """Marks the rows that leave, and writes no row a second time."""

    copies: ClassVar[bool] = False

    def write(
        self,
        table: LakeTable,
        target: FileTarget,
        keys: Sequence[str],
        edits: Sequence[Edit],
        rows: pa.Table,
        spread: Spread = in_threads,
    ) -> Written:
        """Mark what leaves; a file that nothing is left of goes. New rows are sorted by their keys.

        That is little work, which is not spread.
        """
        writer = TableWriter(table.store, replace(target, sort_by=tuple(keys)))
        try:
            for batch in rows.combine_chunks().to_batches():
                writer.write(batch)
            added = writer.close()
            removed, marked = _mark(table, edits)
        except BaseException:
            writer.abort()
            raise
        vectors = sorted({path for _, vector in marked if (path := vector.path)})
        more = {"marked": len(marked)} if marked else {}
        return Written(added, removed, more=more, marked=marked, made=vectors)


def _mark(
    table: LakeTable, edits: Sequence[Edit]
) -> tuple[list[DataFile], list[tuple[DataFile, DeletionVector]]]:
    """The files that go as a whole, and the others with their new vectors, which one file holds."""
    removed, left, bitmaps = [], [], []
    for edit in edits:
        before = NONE if edit.file.vector is None else read_vector(table.store, edit.file.vector)
        deleted = union(before, edit.gone)
        count = stored_row_count(table.store, edit.file)
        if len(deleted) == count:
            removed.append(edit.file)
            continue
        # A file with a vector must say how many rows it has.
        stats = edit.file.stats or f'{{"numRecords":{count}}}'
        left.append(replace(edit.file, stats=stats))
        bitmaps.append(deleted)
    vectors = write_vectors(table.store, bitmaps, durable=table.durable)
    return removed, list(zip(left, vectors, strict=True))
