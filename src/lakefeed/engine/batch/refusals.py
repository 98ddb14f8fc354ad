"""Refusals: which share of a table's events becomes dead letters, when that is worth a word, and a stop.

This is the one rule: the terminal, the log, the page with its dots and `/readyz` all tell what `add` returns.
The share is that of the last 1,000 events or more, as batches come, and of at least 20. It is told when it
passes 5%, and once more when it is below again. Events that are dead letters
already when they are read count for nothing: nobody refuses them now.

A batch that passes `dead_letters.stop_above` is not committed at all: its events stay in the source, unread.
So a start after the correction reads them, and one without stops again.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import pyarrow as pa

from lakefeed.columns.inferred import to_declare
from lakefeed.engine.batch.manifest import TableManifest
from lakefeed.engine.run_events import DeadLetterSample, RefusingMany
from lakefeed.errors import TableError
from lakefeed.units import format_share

_TELL_ABOVE = 0.05
_LOUD_ABOVE = 0.1
_WINDOW = 1_000
_ENOUGH = 20
"""Events that a share is counted of at least."""


@dataclass(frozen=True)
class RefusedShare:
    """How many events of a batch a table has judged, and how many of them it has refused."""

    read: int
    refused: int
    reasons: dict[str, int] = field(default_factory=dict)
    """By `stage/code`."""
    samples: tuple[DeadLetterSample, ...] = ()

    @classmethod
    def of(cls, read: int, result: TableManifest) -> RefusedShare:
        """What a batch was for a table that has read so many of its events."""
        refused = sum(result.refusals.values())
        before = sum(result.dead_letters.values()) - refused
        return cls(read - before, refused, result.refusals, tuple(result.samples))

    def exceeds(self, share: float) -> bool:
        """Whether more than this share was refused."""
        return self.refused > share * self.read


class Refusals:
    """The refusals of all tables of one source; each table is told of by one flow at a time."""

    def __init__(self, source: str, stop_above: float | None) -> None:
        self._source = source
        self._stop_above = stop_above
        self._recent: dict[str, deque[RefusedShare]] = {}
        self._told: set[str] = set()
        self._fresh: dict[str, pa.Schema] = {}

    def inferred(self, table: str, proposal: pa.Schema) -> None:
        """Look closely at the first events of a table whose columns were just inferred from them."""
        self._fresh[table] = proposal

    def limit(self, table: str, batch: RefusedShare) -> TableError | None:
        """Why the batch must not be committed: with it, more is refused than the pipeline file allows."""
        limit = self._stop_above
        if limit is None or not batch.exceeds(limit):
            # A good batch is committed, whatever came before it: a start would find nothing wrong with it.
            return None
        together = _sum([*self._recent.get(table, ()), batch])
        if together.read < _ENOUGH or not together.exceeds(limit):
            return None
        return TableError(
            f"table {table}: {_share(batch)} would become dead letters, more than "
            f"`dead_letters.stop_above: {format_share(limit)}`; {_most_often(batch)}.\n"
            "None of these events was written. Correct `schema` or the producer, or allow more, then "
            "start again."
        )

    def add(self, table: str, batch: RefusedShare) -> RefusingMany | None:
        """Count a batch that was committed; returns what is to be told about the table, if anything."""
        recent = self._recent.setdefault(table, deque())
        recent.append(batch)
        while sum(one.read for one in recent) - recent[0].read >= _WINDOW:
            recent.popleft()
        fresh = self._fresh.pop(table, None) if batch.read else None
        window = _sum(recent)
        if window.read >= _ENOUGH and window.exceeds(_TELL_ABOVE):
            if table in self._told:
                return None
            self._told.add(table)
            loud = fresh is not None and batch.refused >= _LOUD_ABOVE * batch.read
            advice = _advice(fresh, batch) if loud and fresh is not None else ""
            share = f"{_share(window, 'of the last')} became dead letters"
            return RefusingMany(table, self._source, share, _most_often(window), advice)
        if table in self._told:
            self._told.discard(table)
            return RefusingMany(table, self._source)
        return None


def _sum(batches: list[RefusedShare] | deque[RefusedShare]) -> RefusedShare:
    reasons = Counter[str]()
    for one in batches:
        reasons.update(one.reasons)
    samples = tuple(sample for one in reversed(batches) for sample in one.samples)
    return RefusedShare(
        sum(one.read for one in batches), sum(one.refused for one in batches), reasons, samples
    )


def _share(batch: RefusedShare, of: str = "of") -> str:
    return f"{batch.refused:,} {of} {batch.read:,} events ({batch.refused / batch.read:.1%})"


def _most_often(batch: RefusedShare) -> str:
    """The most frequent reason, with one example of it."""
    reason = max(batch.reasons, key=lambda one: (batch.reasons[one], one))
    code = reason.partition("/")[2]
    found = next((one for one in batch.samples if one.code == code), None)
    example = f": {found.error} (partition {found.partition}, offset {found.offset})" if found else ""
    return f"most often {code}{example}"


def _advice(proposal: pa.Schema, batch: RefusedShare) -> str:
    """The lines of `schema` with which the events that an inferred schema refuses would be rows."""
    lines = to_declare(proposal, [one.error for one in batch.samples if one.stage == "schema"])
    if not lines:
        return ""
    return (
        f"Its columns were inferred from these events. To take all of them, declare `schema: {{{lines}}}`; "
        'the page "Change a column\'s type" says how.'
    )
