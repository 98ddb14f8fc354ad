"""Reading ahead of who works on messages: bounded, in order, and with every error told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from lakefeed.sources.postgres.replication import ahead
from lakefeed.sources.postgres.replication.ahead import ReadingAhead
from support.processes import wait_until


class Connection:
    """Nobody is asked to cancel anything before the end."""

    def cancel(self) -> None:
        """There is no server."""


CONNECTION: Any = Connection()


def test_no_more_than_some_bytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_MOST_BYTES", 1_000)
    made: list[int] = []

    def lists() -> Iterator[list[bytes]]:
        for at in range(100):
            made.append(at)
            yield [bytes(100)]

    reading = ReadingAhead(CONNECTION, lists())
    taken = iter(reading)
    next(taken)
    wait_until(lambda: len(made) >= 12, 120, lambda: f"{len(made)}")
    time.sleep(0.1)

    # Those that wait, the one that was taken, and the one that does not fit.
    assert len(made) == 12
    assert sum(1 for _ in taken) == 99
    reading.close()


def test_messages_come_in_order_and_then_the_error() -> None:
    def lists() -> Iterator[list[bytes]]:
        yield [b"first"]
        yield [b"second"]
        raise ValueError("third")

    reading = ReadingAhead(CONNECTION, lists())
    taken = iter(reading)

    assert [next(taken), next(taken)] == [[b"first"], [b"second"]]
    with pytest.raises(ValueError, match="third"):
        next(taken)
    reading.close()


def test_closing_ends_a_thread_that_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_MOST_BYTES", 1)

    reading = ReadingAhead(CONNECTION, ([b"one"] for _ in range(10)))
    time.sleep(0.1)
    reading.close()

    assert not reading._thread.is_alive()
