"""Rows of data files, read by a worker with Arrow, as the table has its columns now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from lakefeed.errors import DataLoss
from lakefeed.events import ORIGIN, Events, OffsetRange, origin_of
from lakefeed.sources import PARTITION
from lakefeed.sources.delta.piece import Piece
from lakefeed.sources.delta.source import DeltaSource
from lakefeed.sources.source_errors import source_errors
from lakefeed.stores import open_store, store_errors
from lakefeed.tables.file_rows import arrow_schema, read_file
from lakefeed.tables.log.change_feed import TOLD, TYPE, marked
from lakefeed.tables.log.roaring import Positions


class RowEvents(Events):
    """Rows of one piece of a file, each with its offset."""

    def __init__(self, columns: pa.RecordBatch, offsets: Positions, moment: int) -> None:
        self.columns = columns
        self._offsets, self._moment = offsets, moment

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """The offset of each row, and when its file was written, or its change committed."""
        offsets = self._offsets if rows is None else self._offsets[np.asarray(rows, np.int64)]
        count = len(offsets)
        return origin_of(
            count,
            partition=pa.repeat(pa.scalar(0, pa.int32()), count),
            offset=pa.array(offsets),
            timestamp=pa.repeat(pa.scalar(self._moment * 1000, ORIGIN.field("timestamp").type), count),
        )

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """All are of one partition."""
        return {PARTITION: len(self) if rows is None else len(rows)}


def read(source: DeltaSource, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
    """Yield every row of the pieces that the ranges carry."""
    store = open_store(source.path, source.storage)
    for span in ranges:
        for part in span.payload or ():
            schema = arrow_schema(part["schema"])
            for given in part["pieces"]:
                piece = Piece.of_payload(given)
                with source_errors(), store_errors(source.path):
                    yield from _events(source, store, piece, schema)


def _events(source: DeltaSource, store: pafs.FileSystem, piece: Piece, schema: pa.Schema) -> Iterator[Events]:
    if piece.change == TOLD:
        schema = schema.append(pa.field(TYPE, pa.string()))
    try:
        for rows, indexes in read_file(store, piece.wanted, schema):
            # Rows are counted through the file; the first one of the piece has its offset.
            offsets = indexes - piece.first + piece.start.number
            if piece.change is None:
                yield RowEvents(rows, offsets, piece.modified)
            else:
                told = marked(rows, piece.change, piece.start.version, piece.modified)
                yield RowEvents(told, offsets, piece.modified)
    except FileNotFoundError:
        raise DataLoss(
            f"{source.path}: the file {piece.path} of {piece.start} is gone: a vacuum has removed it before "
            "it was read.\nKeep files for longer (`upkeep.vacuum.retain` of that table); what is still there "
            "is read by a table that starts anew."
        ) from None
