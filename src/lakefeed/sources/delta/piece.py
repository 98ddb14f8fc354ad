"""Pieces of data files: what a task reads, and how it travels there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from lakefeed.events import OffsetRange, Split
from lakefeed.sources import Allowance
from lakefeed.sources.delta.offset import DeltaOffset
from lakefeed.sources.dense_offsets import task_count
from lakefeed.tables.file_rows import FileRows
from lakefeed.tables.log.data_file import Partition
from lakefeed.tables.log.vector import DeletionVector


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of one file, from row `first` of it on; `start` is the offset of the first one."""

    start: DeltaOffset
    path: str
    rows: int
    size: int
    partition: Partition
    modified: int
    """When the file was written, in milliseconds since 1970: the time of its rows. Of changes, when they were
    committed."""
    vector: DeletionVector | None = None
    """Which rows of the file are deleted. They are counted in `rows`, and nobody reads them."""
    first: int = 0
    of: int = 0
    """The rows of the whole file, where this is a part of it."""
    change: str | None = None
    """What its rows do, of a change feed: see `lakefeed.tables.log.change_feed`."""
    only: DeletionVector | None = None
    """Of a change feed, where it is there: none but these rows are read."""

    @property
    def wanted(self) -> FileRows:
        """What is read of the file."""
        return FileRows(self.path, self.size, self.partition, self.vector, self.only, self.first, self.rows)

    @property
    def live(self) -> int:
        """The rows that are read; of a part of a file with deleted rows, about so many."""
        if self.only is not None:
            return max(1, self.only.cardinality - (self.vector.cardinality if self.vector else 0))
        if self.vector is None:
            return self.rows
        return self.rows - round(self.vector.cardinality * self.rows / (self.of or self.rows))

    @property
    def end(self) -> DeltaOffset:
        """Behind its last row."""
        return replace(self.start, row=self.start.row + self.rows)

    def cut(self, start: DeltaOffset, end: DeltaOffset) -> Piece | None:
        """What of it lies between two offsets; None where nothing does."""
        before, rows = self._rows_before(start), self._rows_before(end)
        if rows <= before:
            return None
        rows -= before
        share = self.size if rows == self.rows else self.size * rows // self.rows
        begin = replace(self.start, row=self.start.row + before)
        whole = self.of or self.rows
        return replace(self, start=begin, rows=rows, size=share, first=self.first + before, of=whole)

    def _rows_before(self, offset: DeltaOffset) -> int:
        if offset <= self.start:
            return 0
        here = (offset.past, offset.version) == (self.start.past, self.start.version)
        return min(self.rows, offset.row - self.start.row) if here else self.rows

    def fitting_end(self, allowed: Allowance) -> DeltaOffset:
        """Behind as many of its rows as fit into a batch, and one at least."""
        by_size = self.rows * allowed.bytes // max(1, self.size)
        most = max(1, min(self.rows, allowed.rows, by_size))
        return replace(self.start, row=self.start.row + most)

    def payload(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "offset": self.start.number,
            "path": self.path,
            "rows": self.rows,
            "first": self.first,
            "size": self.size,
            "partition": dict(self.partition),
            "modified": self.modified,
            "vector": self.vector.action if self.vector else None,
            "change": self.change,
            "only": self.only.action if self.only else None,
        }

    @classmethod
    def of_payload(cls, given: Mapping[str, Any]) -> Piece:
        """From JSON."""
        partition = tuple(given["partition"].items())
        return cls(
            DeltaOffset.of(given["offset"]),
            given["path"],
            given["rows"],
            given["size"],
            partition,
            given["modified"],
            DeletionVector.of(given["vector"]),
            given["first"],
            change=given["change"],
            only=DeletionVector.of(given["only"]),
        )


def cut_out(pieces: Iterable[Piece], start: DeltaOffset, end: DeltaOffset) -> list[Piece]:
    """What of some pieces lies between two offsets."""
    return [part for piece in pieces if (part := piece.cut(start, end)) is not None]


def tasks(
    span: OffsetRange, pieces: Sequence[Piece], cores: int, payload: Callable[[Sequence[Piece]], Any]
) -> list[Split]:
    """Tasks of about equal rows, each with what `payload` makes of its pieces."""
    rows = sum(piece.rows for piece in pieces)
    groups = list(shared_out(pieces, max(1, -(-rows // task_count(rows, cores))))) or [[]]
    edges = [span.start, *(group[0].start.number for group in groups[1:]), span.end]
    return [
        (OffsetRange(span.partition, start, end, payload(group)),)
        for (start, end), group in zip(pairwise(edges), groups, strict=True)
    ]


def shared_out(pieces: Iterable[Piece], rows: int) -> Iterator[list[Piece]]:
    """Groups of pieces with about so many rows each, in their order; a large piece is cut in several."""
    group: list[Piece] = []
    left = rows
    for piece in pieces:
        while piece.rows > left:
            middle = replace(piece.start, row=piece.start.row + left)
            if part := piece.cut(piece.start, middle):
                group.append(part)
            rest = piece.cut(middle, piece.end)
            assert rest is not None
            yield group
            piece, group, left = rest, [], rows
        group.append(piece)
        left -= piece.rows
        if left <= 0:
            yield group
            group, left = [], rows
    if group:
        yield group
