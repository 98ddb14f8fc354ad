"""A small source of columns: Parquet files `0.parquet`, `1.parquet` and so on, as they arrive in a folder.

Its positions have gaps: the number of a file and the number of a row in one integer. Its ranges carry the
name of their file to the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from lakefeed.events import ORIGIN, Events, OffsetRange, Offsets, Split
from lakefeed.pipeline import connectors
from lakefeed.sources import Allowance, Source, SourceClient

SHIFT = 20


def register() -> None:
    """Let pipeline files name the source."""
    connectors._ROOMS["source"]["folder"] = f"{__name__}:FolderSource"


class FolderSource(Source):
    """Parquet files of a folder, in the order of their numbers.

    An item is a row of a file. Files are read in parallel. It guarantees that a file is read whole and once,
    as long as it does not change.
    """

    type: Literal["folder"] = "folder"
    path: str = Field(description="The folder.")

    def client(self, pipeline: str, name: str) -> SourceClient:
        return FolderClient(Path(self.path))

    def partition_of(self, stream: str | None, number: int) -> str:
        return "files"

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        for span in ranges:
            table = pq.read_table(span.payload["file"], partitioning=None).combine_chunks()
            yield FolderEvents(table.to_batches()[0], span.start)


class FolderEvents(Events):
    def __init__(self, columns: pa.RecordBatch, start: int) -> None:
        self.columns = columns
        self._offsets = pa.array(range(start, start + columns.num_rows), pa.int64())

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        offsets = self._offsets if rows is None else self._offsets.take(pa.array(rows, pa.int64()))
        known = {"partition": pa.repeat(pa.scalar(0, pa.int32()), len(offsets)), "offset": offsets}
        arrays = [known.get(field.name, pa.nulls(len(offsets), field.type)) for field in ORIGIN]
        return pa.record_batch(arrays, schema=ORIGIN)

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        return {"files": len(self) if rows is None else len(rows)}


class FolderClient(SourceClient):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self) -> Offsets:
        return {"files": 0}

    def latest(self) -> Offsets:
        return {"files": len(list(self._folder.glob("*.parquet"))) << SHIFT}

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        return self.start() | positions

    def rows_between(self, position: Offsets, ends: Offsets) -> dict[str, int]:
        files = self._files(position["files"], ends.get("files", 0)) if position else []
        return {name: sum(map(self._rows, files)) for name in position}

    def next_end(self, position: Offsets, ends: Offsets, allowed: Allowance) -> Offsets:
        rows = size = 0
        end = position["files"]
        for number in self._files(position["files"], ends["files"]):
            rows, size = rows + self._rows(number), size + self._path(number).stat().st_size
            if end > position["files"] and (rows > allowed.rows or size > allowed.bytes):
                break
            end = (number + 1) << SHIFT
        return {"files": end}

    def splits(self, ranges: Sequence[OffsetRange], cores: int) -> list[Split]:
        return [
            (OffsetRange("files", number << SHIFT, (number + 1) << SHIFT, {"file": str(self._path(number))}),)
            for span in ranges
            for number in self._files(span.start, span.end)
        ]

    def _files(self, start: int, end: int) -> list[int]:
        return list(range(start >> SHIFT, end >> SHIFT))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.parquet"

    def _rows(self, number: int) -> int:
        return int(pq.read_metadata(self._path(number)).num_rows)
