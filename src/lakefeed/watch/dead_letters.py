"""Dead letters of a run by table and reason, with the newest few of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from lakefeed.engine.run_events import DeadLettersWritten
from lakefeed.watch.view import DeadLetterGroup, DeadLetterView

_MOST_GROUPS = 200
_SAMPLES_KEPT = 8


@dataclass
class _Group:
    count: int = 0
    first: float = 0.0
    last: float = 0.0
    samples: deque[DeadLetterView] = field(default_factory=lambda: deque(maxlen=_SAMPLES_KEPT))


class DeadLetterGroups:
    """Changed by the state of the run, under its lock. The group that is longest without one goes first."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._groups: dict[tuple[str, str, str], _Group] = {}

    def add(self, event: DeadLettersWritten, now: float) -> None:
        """Count dead letters, and keep those that are told word for word."""
        for (stage, code), many in event.counts.items():
            group = self._groups.pop((event.table, stage, code), None) or _Group(first=now)
            # At the end again: the first is the one that has waited longest.
            self._groups[event.table, stage, code] = group
            group.count += many
            group.last = now
        while len(self._groups) > _MOST_GROUPS:
            del self._groups[next(iter(self._groups))]
        for one in event.samples:
            known = self._groups.get((event.table, one.stage, one.code))
            if known is not None:
                known.samples.appendleft(
                    DeadLetterView(
                        at=now,
                        table=event.table,
                        source=event.source,
                        partition=one.partition,
                        offset=one.offset,
                        stage=one.stage,
                        code=one.code,
                        error=self._redact(one.error),
                        payload=self._redact(one.payload),
                    )
                )

    def view(self) -> tuple[DeadLetterGroup, ...]:
        """All groups, the most frequent first."""
        found = [
            DeadLetterGroup(table, stage, code, one.count, one.first, one.last, tuple(one.samples))
            for (table, stage, code), one in self._groups.items()
        ]
        return tuple(sorted(found, key=lambda one: (-one.count, one.table, one.code)))
