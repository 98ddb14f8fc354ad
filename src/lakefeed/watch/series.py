"""Numbers over the last hour and the last day: rates of now, and the points of small charts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

HOUR = 3600.0
DAY = 24 * HOUR
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
class _Steps:
    """Steps of one width over some time; a step holds a sum, or with `level` the last value set."""

    width: float
    kept: float
    level: bool
    _steps: deque[tuple[int, float]] = field(default_factory=deque)
    _drawn: tuple[tuple[int, int, int], list[float]] | None = None

    def add(self, now: float, amount: float) -> None:
        at = int(now // self.width)
        if self._steps and self._steps[-1][0] == at:
            before = 0.0 if self.level else self._steps[-1][1]
            self._steps[-1] = (at, before + amount)
        else:
            self._steps.append((at, amount))
        oldest = int((now - self.kept) // self.width)
        while self._steps and self._steps[0][0] < oldest:
            self._steps.popleft()

    def points(self, now: float, span: float) -> list[float]:
        end = int(now // self.width)
        each = -(-int(span / self.width) // _MOST_POINTS)
        first = end - int(span / self.width) // each * each
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
            return [sum(slot) / (each * self.width) for slot in found]
        points = []
        for slot in found:
            last, highest = (slot[-1], max(slot)) if slot else (last, last)
            points.append(highest)
        return points


class Series:
    """The last hour in steps of ten seconds, and the last day in steps of four minutes."""

    def __init__(self, *, level: bool = False) -> None:
        self._fine = _Steps(10.0, HOUR, level)
        self._coarse = _Steps(240.0, DAY, level)

    def add(self, now: float, amount: float) -> None:
        """Count into the steps of this moment."""
        self._fine.add(now, amount)
        self._coarse.add(now, amount)

    def points(self, now: float, began: float, span: float = HOUR) -> list[float]:
        """At most sixty points of the last `span` seconds, or from the beginning of the run, up to now.

        Sums become amounts a second. The step of now is left out, as it is not over yet.
        """
        span = min(span, max(_SHORTEST_SPAN, now - began))
        return (self._fine if span <= HOUR else self._coarse).points(now, span)
