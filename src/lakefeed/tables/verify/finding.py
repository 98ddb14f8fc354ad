"""What verify found: something wrong in a table, with the version and the offsets that it is about."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = {
    "gap": "offsets that no commit of the table has read",
    "overlap": "offsets that two commits of the table have read",
    "reset": "a position that was moved without reading",
    "count": "rows that do not add up",
    "file": "a data file that is missing, or of another size",
    "foreign": "rows that somebody else added or removed",
    "restore": "a restore that left the positions behind",
    "log": "a version that is missing in the log, or cannot be read",
    "dead_letters": "dead letters that are missing, or there twice",
    "interrupted": "a replay or a rewind that did not come to its end",
    "duplicate": "an event that is in the table twice",
    "difference": "rows that the source and its copy do not have alike",
}
"""Every kind of finding, and what it is."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `partition` is named as `source/partition`; the range ends before `end`."""

    kind: str
    text: str
    version: int | None = None
    partition: str | None = None
    start: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        where = "" if self.version is None else f"version {self.version}: "
        return f"{self.kind}: {where}{self.text}"
