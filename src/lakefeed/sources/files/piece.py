"""Pieces of files: what a task reads, how it travels there, and how a batch is shared out among tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakefeed.sources.files.offset import file_start

_OPENING = 16 * 1024
"""What it costs to open a file, in bytes of a large one."""
_SMALLEST_CUT = 4 * 2**20
"""Bytes of the smallest piece of a file."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as the ledger has it."""

    number: int
    path: str
    size: int
    modified: int
    """Microseconds since 1970."""
    etag: str | None = None
    changed: bool = False
    """Whether it has another content by now, so that what was found cannot be read."""


def found_files(rows: pa.Table) -> list[FoundFile]:
    """Rows of a ledger or of a listing, whose files have the number 0 there."""
    numbers = rows["number"] if "number" in rows.column_names else pa.repeat(0, rows.num_rows)
    columns = (numbers, rows["path"], rows["size"], rows["modified"].cast(pa.int64()), rows["etag"])
    return [FoundFile(*row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets of one file from `first` up to and without `end`; all of it where `end` is None."""

    file: FoundFile
    first: int = 0
    end: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether no other piece of the file exists."""
        return not self.first and self.end is None

    @property
    def start(self) -> int:
        """The offset that it begins at."""
        return file_start(self.file.number) + self.first

    def payload(self) -> list[Any]:
        """As JSON."""
        file = self.file
        known = [file.number, file.path, file.size, file.modified, file.etag, file.changed]
        return [*known, self.first, self.end]

    @classmethod
    def of_payload(cls, given: Sequence[Any]) -> Piece:
        """From JSON."""
        return cls(FoundFile(*given[:6]), *given[6:])


@dataclass(frozen=True)
class Work:
    """A file to be shared out: its bytes when it is read, and at how many offsets it can be cut."""

    file: FoundFile
    size: int
    cuts: int = 0

    @property
    def weight(self) -> int:
        """What it costs to open and to read it."""
        return self.size + _OPENING

    @property
    def may_be_cut(self) -> bool:
        """Whether several tasks may read it."""
        return self.cuts > 0 and self.size >= 2 * _SMALLEST_CUT


def shared_out(files: Iterable[Work], weight: int) -> Iterator[list[Piece]]:
    """Groups of pieces of about that weight, in the order of the files; a large file is cut where it can."""
    group: list[Piece] = []
    left = weight
    for work in files:
        if not work.may_be_cut or work.weight <= left:
            group.append(Piece(work.file))
            left -= work.weight
        else:
            at, least = 0, max(1, _SMALLEST_CUT * work.cuts // work.size)
            while at < work.cuts:
                end = at + max(least, left * work.cuts // work.weight)
                end = work.cuts if end + least > work.cuts else end
                group.append(Piece(work.file, at, end))
                left -= work.weight * (end - at) // work.cuts
                at = end
                if at < work.cuts:
                    yield group
                    group, left = [], weight
        if left <= 0:
            yield group
            group, left = [], weight
    if group:
        yield group
