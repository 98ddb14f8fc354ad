"""Removals: which parts of a log together name every file that was removed since a moment.

A checkpoint lists the files that were removed within the table's retention before it was written. So a chain
of checkpoints, each within the reach of the next newer one, replaces the entries between them, of which a
stream writes thousands a day.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakefeed.stores import parallel_map
from lakefeed.tables.log.log import Log
from lakefeed.tables.retention import DAY, DELETED_FILES, retention

_CLOCKS_APART = 3_600_000
"""Milliseconds by which the clocks of a store and of a writer may differ."""


@dataclass(frozen=True)
class RemovalSources:
    """The parts of a log to read."""

    checkpoints: tuple[int, ...]
    entries: tuple[int, ...]


def removal_sources(log: Log, kept: float, since: int) -> RemovalSources:
    """Where every removal since a moment is listed, as far as the log still has it.

    `kept` is how many seconds a removal stays in checkpoints, `since` is in milliseconds since 1970.
    """
    times, newest = log.checkpoint_times, log.newest_checkpoint
    entries = [version for version in log.versions if version > newest]
    if not times:
        return RemovalSources((), tuple(entries))
    chain, reaches = [newest], _reaches(log, kept, since)
    while (reach := reaches[chain[-1]]) > since:
        older = [version for version in times if version < chain[-1]]
        margin = min(_CLOCKS_APART, (times[chain[-1]] - reach) // 4)
        if within := [version for version in older if times[version] >= reach + margin]:
            chain.append(min(within))
            continue
        before = max(older, default=-1)
        entries += _written(log, range(before + 1, chain[-1] + 1), 0 if older else since, reach)
        if not older:
            break
        chain.append(before)
    return RemovalSources(tuple(chain), tuple(sorted(entries)))


def _reaches(log: Log, kept: float, since: int) -> dict[int, int]:
    """By version of a checkpoint: the moment from which on it lists all removals.

    A checkpoint is made of the one before it, so it lacks as well what any before it has left out: the
    retention may have been shorter for a time.
    """
    asked = [version for version, at in log.checkpoint_times.items() if at > since]
    metadata = dict(zip(asked, parallel_map(log.store, log.checkpoint_metadata, asked), strict=True))
    reaches, reach = {}, 0
    for version in sorted(log.checkpoint_times):
        at = log.checkpoint_times[version]
        if version in metadata:
            configuration = dict((metadata[version] or {}).get("configuration") or {})
            own = retention(configuration, DELETED_FILES)
            reach = max(reach, at - int(min(kept, own) * 1000))
        reaches[version] = max(reach, min(at, since))
    return reaches


def _written(log: Log, versions: range, since: int, until: int) -> list[int]:
    """Those of the versions whose entries were written between two moments, or a day before or after."""
    day = int(DAY * 1000)
    return [
        version
        for version in versions
        if version in log.versions and (not (at := log.versions[version]) or since - day <= at <= until + day)
    ]
