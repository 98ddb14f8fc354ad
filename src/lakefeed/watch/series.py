"""Numbers over the last hour: rates of now, and the points of small charts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

HOUR = 3600.0
_WIDTH = 10.0
_SHORTEST_SPAN = 120.0
_MOST_POINTS = 60


@dataclass
class Rate:
    """How much has come each second, over a window that ends now."""

    window: float
    began: float
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, now: float, amount: int) -> None:
        """Count what has just come."""
        self._recent.append((now, amount))
        self._forget(now)

    def now(self, now: float) -> float:
        """The amount a second, since the beginning if that is nearer than the window."""
        self._forget(now)
        span = min(self.window, now - self.began)
        return sum(amount for _, amount in self._recent) / span if span > 0 else 0.0

    def _forget(self, now: float) -> None:
        while self._recent and now - self._recent[0][0] > self.window:
            self._recent.popleft()


@dataclass
class Series:
    """The last hour in steps of ten seconds; a step holds a sum, or with `level` the last value set."""

    level: bool = False
    _steps: deque[tuple[int, float]] = field(default_factory=deque)
    _sum: float = 0.0
    _drawn: tuple[tuple[int, int, int], list[float]] | None = None

    def add(self, now: float, amount: float) -> None:
        """Count into the step of this moment."""
        at = int(now // _WIDTH)
        if self._steps and self._steps[-1][0] == at:
            before = 0.0 if self.level else self._steps[-1][1]
            self._steps[-1] = (at, before + amount)
        else:
            self._steps.append((at, amount))
        self._sum += amount
        self._forget(now)

    def total(self, now: float) -> float:
        """The sum of the last hour."""
        self._forget(now)
        return self._sum

    def _forget(self, now: float) -> None:
        oldest = int((now - HOUR) // _WIDTH)
        while self._steps and self._steps[0][0] < oldest:
            self._sum -= self._steps.popleft()[1]

    def points(self, now: float, began: float) -> list[float]:
        """At most sixty points from the beginning of the run, or of the last hour, up to now.

        Sums become amounts a second. The step of now is left out, as it is not over yet.
        """
        end = int(now // _WIDTH)
        span = min(HOUR, max(_SHORTEST_SPAN, now - began))
        each = -(-int(span / _WIDTH) // _MOST_POINTS)
        first = end - int(span / _WIDTH) // each * each
        if self._drawn is None or self._drawn[0] != (first, end, each):
            self._drawn = ((first, end, each), self._draw(first, end, each))
        return self._drawn[1]

    def _draw(self, first: int, end: int, each: int) -> list[float]:
        """Changes only when a step is over, so it is kept until then."""
        found: list[list[float]] = [[] for _ in range((end - first) // each)]
        last = 0.0
        for at, amount in self._steps:
            if at < first:
                last = amount
            elif at < end:
                found[(at - first) // each].append(amount)
        if not self.level:
            return [sum(slot) / (each * _WIDTH) for slot in found]
        points = []
        for slot in found:
            last, highest = (slot[-1], max(slot)) if slot else (last, last)
            points.append(highest)
        return points
