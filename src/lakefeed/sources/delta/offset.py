"""An offset in a Delta table that is read: a version and a row of it, as one number that only grows.

First comes a snapshot, the rows of all files of one version; then the rows that each later version adds. Rows
are counted as their files hold them, in the order of the files, so that each has an offset of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

_ROW_BITS = 34
_VERSION_BITS = 28
_PAST = 1 << (_ROW_BITS + _VERSION_BITS)
MOST_ROWS = 1 << _ROW_BITS
"""Rows of one version, or of the first snapshot: some 17 billion."""
MOST_VERSIONS = 1 << _VERSION_BITS
"""Versions of a table: a commit in each second for eight years."""


@dataclass(frozen=True, order=True)
class DeltaOffset:
    """Before a row: of a snapshot, or with `past` of what a version has added."""

    past: bool
    version: int
    row: int = 0

    @classmethod
    def of(cls, number: int) -> DeltaOffset:
        """The version and the row that a number stands for."""
        version = (number & ~_PAST) >> _ROW_BITS
        return cls(bool(number & _PAST), version, number & (MOST_ROWS - 1))

    @property
    def number(self) -> int:
        """Both as one number below 2**63, as positions have it."""
        return (_PAST if self.past else 0) | (self.version << _ROW_BITS) | self.row

    def is_reread_from(self, start: DeltaOffset) -> bool:
        """Whether a reader that begins at `start` may get the row of this offset under another one.

        A snapshot has the rows of all versions up to its own, each under an offset of that snapshot.
        """
        if start.past:
            return not self.past and self.version >= start.version
        return self.version <= start.version if self.past else self.version != start.version

    def __str__(self) -> str:
        """`version 12`, `version 12, row 500` or `the snapshot of version 12, row 500`."""
        row = f", row {self.row:,}" if self.row else ""
        return f"{'' if self.past else 'the snapshot of '}version {self.version}{row}"


BEGINNING = DeltaOffset(False, 0)
"""Before everything, also before the table is made."""


def version_start(version: int) -> DeltaOffset:
    """Before the first row that a version adds."""
    return DeltaOffset(True, version)
