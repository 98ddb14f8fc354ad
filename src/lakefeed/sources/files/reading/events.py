"""Records of files, in memory on a worker: each with its file and its offset there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefeed.events import ORIGIN, Events, Refused, origin_of
from lakefeed.sources import PARTITION
from lakefeed.sources.files.offset import file_start
from lakefeed.sources.files.piece import FoundFile
from lakefeed.sources.files.reading.lines import FileOffsets


class FileEvents(Events):
    """Records of some files, in their order."""

    def __init__(
        self,
        files: Sequence[FoundFile],
        counts: Sequence[int],
        offsets: FileOffsets,
        *,
        payloads: Sequence[bytes | None] = (),
        columns: pa.RecordBatch | None = None,
        refused: Sequence[Refused] = (),
        before: int = 0,
    ) -> None:
        """`counts` are the records of each file, `before` bytes of the last one that were read before."""
        self.payloads, self.columns, self.refused = payloads, columns, refused
        self._files, self._counts, self._offsets, self._before = files, counts, offsets, before

    def size(self) -> tuple[int, int]:
        """All bytes, and those of the last file so far: no batch ends inside of a file, however large."""
        if self.refused:
            return 0, 0
        whole, _ = super().size()
        return whole, whole + self._before

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """The file and the offset of each record, and when the file was modified."""
        owners, offsets = self._owners(rows)
        starts = np.array([file_start(file.number) for file in self._files], np.int64)
        return self._origin(owners, starts[owners] + offsets)

    def shown(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """The same, with the offset in the file."""
        return self._origin(*self._owners(rows))

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """All are of one partition."""
        return {PARTITION: len(self) if rows is None else len(rows)}

    def parts(self) -> Mapping[str, int]:
        """How many records of each file there are."""
        found: Counter[str] = Counter()
        for file, count in zip(self._files, self._counts, strict=True):
            found[str(file.number)] += count
        return found

    def part_errors(self) -> Mapping[str, str]:
        """Why the file could not be read, or not all of it."""
        return {str(self._files[0].number): one.error for one in self.refused}

    def newest(self) -> float | None:
        """When the last file was modified."""
        return self._files[-1].modified / 1_000_000 if self._files else None

    def _owners(self, rows: Sequence[int] | None) -> tuple[npt.NDArray[np.int64], FileOffsets]:
        owners = np.repeat(np.arange(len(self._files)), self._counts)
        if rows is None:
            return owners, self._offsets
        chosen = np.asarray(rows, np.int64)
        return owners[chosen], self._offsets[chosen]

    def _origin(self, owners: npt.NDArray[np.int64], offsets: FileOffsets) -> pa.RecordBatch:
        count, files = len(owners), self._files
        taken = pa.array(owners)
        times = pa.array([file.modified for file in files], ORIGIN.field("timestamp").type)
        headers = pa.array([_headers(file) for file in files], ORIGIN.field("headers").type)
        return origin_of(
            count,
            stream=pa.array([file.path for file in files], pa.string()).take(taken),
            partition=pa.repeat(pa.scalar(0, pa.int32()), count),
            offset=pa.array(offsets, pa.int64()),
            timestamp=times.take(taken),
            headers=headers.take(taken),
        )


def _headers(file: FoundFile) -> list[dict[str, object]]:
    name = file.path.rpartition("/")[2]
    return [{"key": "file", "value": name.encode()}, {"key": "size", "value": str(file.size).encode()}]
