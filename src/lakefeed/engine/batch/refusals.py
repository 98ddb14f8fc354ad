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
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from shlex import quote

import pyarrow as pa

from lakefeed.columns.inferred import to_declare
from lakefeed.engine.batch.manifest import TableManifest
from lakefeed.engine.run_events import AllRefused, DeadLetterSample, RefusingMany
from lakefeed.errors import TableError
from lakefeed.units import format_share

_TELL_ABOVE = 0.05
_LOUD_ABOVE = 0.1
_WINDOW = 1_000
_REPLACE_ABOVE = 0.5
"""Rows that replace those of a table are not committed above this share, unless the file has another."""
_FEW = 0.1
"""Rows are not committed below this share of those that they replace, where others are left out."""
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

    @classmethod
    def of_partitions(
        cls, partitions: Collection[str], read: Mapping[str, int], result: TableManifest
    ) -> RefusedShare:
        """What a batch was for one stream of a route; `result` counts the dead letters of all streams."""
        samples = tuple(one for one in result.samples if one.partition in partitions)
        codes = {one.code for one in samples}
        reasons = {text: n for text, n in result.refusals.items() if text.partition("/")[2] in codes}
        refused = sum(result.dead_letters.get(one, 0) for one in partitions)
        return cls(sum(read.get(one, 0) for one in partitions), refused, reasons or result.refusals, samples)

    def exceeds(self, share: float) -> bool:
        """Whether more than this share was refused."""
        return self.refused > share * self.read


class Refusals:
    """The refusals of all tables of one source; each table is told of by one flow at a time."""

    def __init__(
        self,
        source: str,
        stop_above: float | None,
        describe: Callable[[int], str | None] = lambda _: None,
    ) -> None:
        """Take the source's name, the limit of the file, and what says an offset in words."""
        self._source, self._describe = source, describe
        self._stop_above = stop_above
        self._recent: dict[str, deque[RefusedShare]] = {}
        self._told: set[str] = set()
        self._begun: set[str] = set()
        """Tables that have had a batch with events."""
        self._fresh: dict[str, tuple[pa.Schema, bool]] = {}

    def inferred(self, table: str, proposal: pa.Schema, *, has_sql: bool = False) -> None:
        """Look closely at the first events of a table whose columns were just inferred from them."""
        self._fresh[table] = proposal, has_sql

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
            f"`dead_letters.stop_above: {format_share(limit)}`; {self._most_often(batch)}.\n"
            "None of these events was written. Correct `schema` or the producer, or allow more, then "
            "start again."
        )

    def limit_replacing(self, table: str, path: str, rows: RefusedShare) -> TableError | None:
        """Why rows must not replace those of a table: more of them are refused than the file allows."""
        limit = _REPLACE_ABOVE if self._stop_above is None else self._stop_above
        if not rows.refused or not rows.exceeds(limit):
            return None
        named = "" if self._stop_above is None else "`dead_letters.stop_above: "
        allowed = f"{named}{format_share(limit)}{'`' if named else ''}"
        return TableError(
            f"table {table}: {rows.refused:,} of {rows.read:,} rows of the new snapshot would become dead "
            f"letters, more than {allowed}; {self._most_often(rows)}.\n"
            f"Nothing was replaced. Correct `schema`, or `lakefeed table drop {quote(path)} --yes` and start "
            "again: the table is created with the types of now. Or raise `dead_letters.stop_above`."
        )

    def count(self, table: str, batch: RefusedShare) -> deque[RefusedShare]:
        """Count a batch that was committed; returns those that count by now."""
        recent = self._recent.setdefault(table, deque())
        recent.append(batch)
        while sum(one.read for one in recent) - recent[0].read >= _WINDOW:
            recent.popleft()
        return recent

    def limit_left_out(
        self, table: str, path: str, rows: int, left_out: int, there: int
    ) -> TableError | None:
        """Why rows must not replace the `there` rows of a table: nearly all of them are left out."""
        taken = rows - left_out
        if not left_out or taken >= _FEW * there:
            return None
        return TableError(
            f"table {table}: {left_out:,} of {rows:,} rows of the new snapshot would be left out, and "
            f"{taken:,} would replace the {there:,} of the table.\n"
            f"Nothing was replaced. Correct `where` or `expect`. If that is meant, `lakefeed table drop "
            f"{quote(path)} --yes` and start again."
        )

    def judge_first(self, table: str, batch: RefusedShare, has_rows: Callable[[], bool]) -> AllRefused | None:
        """Look at a batch that was committed: whether the table still has no row, as it refuses everything.

        Only the first batch with events counts, so that `has_rows` is rarely asked.
        """
        if not batch.read or table in self._begun:
            return None
        self._begun.add(table)
        if batch.refused < batch.read or has_rows():
            return None
        return AllRefused(table, self._source, batch.refused, self._most_often(batch))

    def add(self, table: str, batch: RefusedShare) -> RefusingMany | None:
        """Count a batch that was committed; returns what is to be told about the table, if anything."""
        recent = self.count(table, batch)
        fresh = self._fresh.pop(table, None) if batch.read else None
        window = _sum(recent)
        if window.read >= _ENOUGH and window.exceeds(_TELL_ABOVE):
            if table in self._told:
                return None
            self._told.add(table)
            loud = fresh is not None and batch.refused >= _LOUD_ABOVE * batch.read
            advice = _advice(*fresh, batch) if loud and fresh is not None else ""
            share = f"{_share(window, 'of the last')} became dead letters"
            return RefusingMany(table, self._source, share, self._most_often(window), advice)
        if table in self._told:
            self._told.discard(table)
            return RefusingMany(table, self._source)
        return None

    def _most_often(self, batch: RefusedShare) -> str:
        """The most frequent reason, with one example of it."""
        reason = max(batch.reasons, key=lambda one: (batch.reasons[one], one))
        code = reason.partition("/")[2]
        found = next((one for one in batch.samples if one.code == code), None)
        if found is None:
            return f"most often {code}"
        where = self._describe(found.offset) or f"partition {found.partition}, offset {found.offset}"
        return f"most often {code}: {found.error} ({where})"


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


def _advice(proposal: pa.Schema, has_sql: bool, batch: RefusedShare) -> str:
    """The lines of `schema` with which the events that an inferred schema refuses would be rows."""
    errors = [one.error for one in batch.samples if one.stage == "schema"]
    lines = to_declare(proposal, errors, whole=has_sql)
    if not lines:
        return ""
    return (
        f"Its columns were inferred from these events. To take all of them, declare `schema: {lines}`; "
        'the page "Change a column\'s type" says how.'
    )
