"""What holds the segments of a journal: a disk, or an object store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

KEYS = "keys"
"""The name of what is kept of segments that are gone."""
_SUFFIX = ".segment"
_EPOCH_BITS = 32
"""The number of a segment has below these bits its place among the segments of one run, and the epoch of the
run above."""


def first_number(epoch: int) -> int:
    """The first number of the segments of an epoch."""
    return epoch << _EPOCH_BITS


def epoch_of(number: int) -> int:
    """The epoch in which a segment was written."""
    return number >> _EPOCH_BITS


def segment_name(number: int) -> str:
    """The name of a segment, of a file or an object."""
    return f"{number:012}{_SUFFIX}"


def segment_numbers(names: Iterable[str]) -> list[int]:
    """The segments among some names, in their order."""
    found = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(int(name) for name in found if name.isdigit())


class Segments(Protocol):
    """Numbered runs of bytes. Written by one process; read by anybody."""

    grows: bool
    """Whether a segment takes more than one write."""

    first: int
    """The first number that the next segment of this run may have. No other run ever uses it or one up to the
    next epoch, so the number of a segment that was deleted is never free again."""

    def locked(self) -> AbstractContextManager[None]:
        """Hold the journal for the length of a run. Raises Fenced."""

    def numbers(self) -> list[int]:
        """The segments that there are, in their order."""

    def read(self, number: int, start: int = 0, end: int | None = None) -> bytes:
        """Some bytes of a segment. Raises FileNotFoundError."""

    def append(self, number: int, at: int, parts: list[bytes]) -> None:
        """Write behind the bytes that are there, and wait until they survive a power cut.

        Raises Fenced where another run has taken the journal over, which may not read what was written.
        """

    def confirm(self) -> None:
        """Raise Fenced where another run has taken the journal over. Called from any thread."""

    def cut(self, number: int, size: int) -> None:
        """Take back all bytes of a segment from a byte on; the whole segment if nothing stays.

        Where nothing can be taken back safely, `first` moves on, and what came before it and was not
        confirmed counts for nothing.
        """

    def delete(self, number: int) -> None:
        """Let a segment go."""

    def save_keys(self, data: bytes) -> None:
        """Replace what is kept of segments that are about to go, in one step."""

    def keys(self) -> bytes:
        """What `save_keys` has kept; nothing if it was never called."""


def segments_at(journal: str, storage: Mapping[str, str]) -> Segments:
    """The segments of the journal at a path."""
    if "://" in journal:
        from lakefeed.sources.http.journal.objects import ObjectSegments

        return ObjectSegments(journal, storage)
    from lakefeed.sources.http.journal.disk import DiskSegments

    return DiskSegments(journal)
