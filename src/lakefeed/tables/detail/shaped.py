"""What tables have left out, and how rows have met the rules of `expect`, as the log counts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakefeed.tables.log.log import Log
from lakefeed.tables.table import commit_info_of

Counts = Mapping[str, Mapping[str, int]]
"""By rule: how many rows `passed`, or are `warned`, `dropped` or `dead_letter`."""

_LOOKED_AT = 1_000
"""Entries that are counted, the newest: a status must not read a log of weeks."""


@dataclass
class Shaped:
    """What the newest commits of a table count, from `since` on."""

    since: int = 0
    filtered: int = 0
    """Rows that `where` and `expect` have left out."""
    expectations: dict[str, dict[str, int]] = field(default_factory=dict)


def merged_counts(one: Counts, other: Counts) -> dict[str, dict[str, int]]:
    """The sum of two counts."""
    found = {rule: dict(results) for rule, results in one.items()}
    for rule, results in other.items():
        known = found.setdefault(rule, {})
        for result, count in results.items():
            known[result] = known.get(result, 0) + count
    return found


def shaped_by(log: Log) -> Shaped:
    """Add up what the entries of a log say, as far as they are there."""
    entries = list(log.newest_entries(_LOOKED_AT))
    found = Shaped(entries[0].version if entries else 0)
    for entry in entries:
        commit_info = commit_info_of(entry.info)
        if commit_info.get("kind") == "rebuild":
            # Every row was made again, and the commit counts what the new rows left out.
            found = Shaped(entry.version)
        filtered = commit_info.get("filtered") or 0
        found.filtered += sum(filtered.values()) if isinstance(filtered, dict) else int(filtered)
        expectations = commit_info.get("expectations") or {}
        found.expectations = merged_counts(found.expectations, expectations)
    return found
