"""Dead letters of a run by table and reason, with the newest few of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lakefeed.engine.run_events import DeadLettersWritten
from lakefeed.watch.view import DeadLetterGroup, DeadLetterView

_MOST_GROUPS = 200
_SAMPLES_KEPT = 8


class DeadLetterGroups:
    """Changed by the state of the run, under its lock. The group that is longest without one goes first."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._groups: dict[tuple[str, str, str], DeadLetterGroup] = {}

    def add(self, event: DeadLettersWritten, now: float) -> None:
        """Count dead letters, and keep those that are told word for word."""
        for (stage, code), many in event.counts.items():
            key = (event.table, stage, code)
            known = self._groups.pop(key, None) or DeadLetterGroup(*key, 0, now, now, ())
            # At the end again: the first is the one that has waited longest.
            self._groups[key] = replace(known, count=known.count + many, last=now)
        while len(self._groups) > _MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
        for one in event.samples:
            key = (event.table, one.stage, one.code)
            if key in self._groups:
                told = vars(one) | {"error": self._redact(one.error), "payload": self._redact(one.payload)}
                sample = DeadLetterView(at=now, table=event.table, source=event.source, **told)
                kept = (sample, *self._groups[key].samples)[:_SAMPLES_KEPT]
                self._groups[key] = replace(self._groups[key], samples=kept)

    def view(self) -> tuple[DeadLetterGroup, ...]:
        """All groups, the most frequent first."""
        return tuple(sorted(self._groups.values(), key=lambda one: (-one.count, one.table, one.code)))
