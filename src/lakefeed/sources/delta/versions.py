"""The versions of a table that a reader goes through, around those that a later one has taken back.

A version that restores an older one takes back everything in between. A reader that has read nothing of that
goes on behind the restore, with the same rows as the table; one that has must stop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakefeed.sources.delta.offset import DeltaOffset, version_start


@dataclass(frozen=True)
class VersionsToRead:
    """The versions that count, oldest first, up to one that takes back what the reader has read."""

    parts: tuple[range, ...] = ()
    stopped_by: int | None = None

    def __iter__(self) -> Iterator[int]:
        for part in self.parts:
            yield from part


def versions_to_read(start: DeltaOffset, last: int, restores: Mapping[int, int]) -> VersionsToRead:
    """The versions from an offset up to a version, given the versions that restore others and which ones."""
    first = start.version if start.past else start.version + 1
    for version in sorted(restores, reverse=True):
        if version > last:
            continue
        if version < first:
            break
        back_to = restores[version]
        if start > version_start(back_to + 1) or (not start.past and start.version > back_to):
            return VersionsToRead(stopped_by=version)
        before = versions_to_read(start, back_to, restores)
        if before.stopped_by is not None:
            return before
        return VersionsToRead((*before.parts, range(version + 1, last + 1)))
    return VersionsToRead((range(first, last + 1),))
