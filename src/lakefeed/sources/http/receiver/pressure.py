"""How much is taken at once: bytes in flight, bytes in the journal, events per second of a sender."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lakefeed.sources.http.receiver.refusal import later
from lakefeed.units import format_size

_RETRY_IN_FLIGHT, _RETRY_JOURNAL = 1.0, 10.0
_LOW = 0.9
"""The share of a limit below which requests are taken again, once it was reached: a limit that is crossed to
and fro with each request would let a few through and refuse the rest at random."""
_BURST = 2.0
"""Seconds of its rate that a sender may send at once."""


class Limit:
    """A limit that, once reached, holds until things are well below it."""

    def __init__(self, most: int, low: float = _LOW) -> None:
        self._most, self._low = most, int(most * low)
        self._reached = False

    def is_reached(self, now: int, more: int = 0) -> bool:
        """Whether so much more is too much."""
        self._reached = now > self._low if self._reached else now + more > self._most
        return self._reached or now + more > self._most


class Pressure:
    """What requests hold in memory, and whether the journal has room."""

    def __init__(self, in_flight: int, quota: int, journal_size: Callable[[], int]) -> None:
        self.in_flight = 0
        self.lock = threading.Lock()
        self._flight_limit = Limit(in_flight, 0.5)
        self._quota = quota
        self._journal_limit = Limit(quota)
        self._journal_size = journal_size

    def check(self, announced: int) -> None:
        """Raise Refusal when there is no room for one more request of that many bytes."""
        if self._flight_limit.is_reached(self.in_flight, announced):
            raise later(
                _RETRY_IN_FLIGHT,
                "too many bytes are being received at this moment (max_in_flight)",
                "send it again after Retry-After seconds",
            )
        if self.is_journal_full(announced):
            raise later(
                _RETRY_JOURNAL,
                f"the journal is full: it holds {format_size(self._quota)} (quota) that tables do not have "
                "yet",
                "send it again after Retry-After seconds; see why the tables do not catch up",
            )

    def is_journal_full(self, announced: int = 0) -> bool:
        """Whether the journal has no room for so many bytes; once full, until tables have taken a part."""
        return self._journal_limit.is_reached(self._journal_size() + self.in_flight, announced)


class Held:
    """The bytes that one request holds, given back when it ends."""

    def __init__(self, pressure: Pressure) -> None:
        self._pressure = pressure
        self.size = 0

    def take(self, count: int) -> None:
        """Hold some more; raises Refusal when that is too much for all together. Called from any thread."""
        with self._pressure.lock:
            self._pressure.check(count)
            self.size += count
            self._pressure.in_flight += count

    def give_back(self, count: int) -> None:
        """Hold less."""
        with self._pressure.lock:
            self.size -= count
            self._pressure.in_flight -= count

    def keep(self, count: int) -> None:
        """Hold no more than this."""
        self.give_back(max(0, self.size - count))

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back(self.size)


class Rates:
    """Events per second of each sender: who has sent too many waits until the time for them has passed."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._free_at: dict[str | None, float] = {}

    def check(self, sender: str | None) -> None:
        """Raise Refusal while a sender must wait."""
        if self._rate is None:
            return
        wait = self._free_at.get(sender, 0.0) - time.monotonic()
        if wait > 0:
            raise later(
                wait,
                f"more than {self._rate:,} events per second (max_rate)",
                "send it again after Retry-After seconds",
                429,
            )

    def count(self, sender: str | None, events: int) -> None:
        """Take note of what was sent."""
        if self._rate is not None:
            start = max(self._free_at.get(sender, 0.0), time.monotonic() - _BURST)
            self._free_at[sender] = start + events / self._rate
