"""Rows of batches that Spark has read, by a worker with Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.errors import SourceError
from lakefeed.events import Events, OffsetRange
from lakefeed.sources.delta.piece import Piece
from lakefeed.sources.delta.read import RowEvents
from lakefeed.sources.spark.source import SparkSource
from lakefeed.tables.file_rows import read_file


def read(source: SparkSource, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
    """Yield every row of the pieces that the ranges carry."""
    for span in ranges:
        if not span.payload:
            continue
        store = pafs.SubTreeFileSystem(span.payload["folder"], pafs.LocalFileSystem())
        for given in span.payload["pieces"]:
            piece = Piece.of_payload(given)
            try:
                with store.open_input_file(piece.path) as stream:
                    schema = pq.read_schema(stream).remove_metadata()
                for rows, indexes in read_file(store, piece.wanted, schema):
                    yield RowEvents(rows, indexes - piece.first + piece.start.number, piece.modified)
            except FileNotFoundError:
                gone = f"{span.payload['folder']}/{piece.path}"
                raise SourceError(
                    f"{gone} is gone: somebody has deleted rows that Spark had read.\n"
                    "Bring it back from a backup, or drop the tables that the source feeds: they begin anew."
                ) from None
