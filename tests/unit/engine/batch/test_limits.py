from __future__ import annotations

import pytest

from lakefeed.engine.batch.limits import BatchLimits
from lakefeed.events import Offsets
from lakefeed.pipeline.flush import Flush
from lakefeed.sources import Allowance
from lakefeed.sources.generate.source import GenerateClient, GenerateSource


def next_end(limits: BatchLimits, position: Offsets, ends: Offsets) -> Offsets | None:
    """The end of the batch that is due now, of a source that counts its events one by one."""
    client = GenerateClient(GenerateSource(), "clicks")
    allowed = limits.allowed(sum(client.rows_between(position, ends).values()))
    return client.next_end(position, ends, allowed) if allowed else None


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_there_at_the_start_has_waited_long_enough() -> None:
    limits = BatchLimits(Flush(interval="60s"), clock=Clock())

    due = next_end(limits, {"0": 0}, {"0": 10})
    later = next_end(limits, {"0": 10}, {"0": 20})

    assert (due, later) == ({"0": 10}, None)


def test_batch_is_due_when_the_interval_has_passed_since_the_first_event() -> None:
    clock = Clock()
    limits = BatchLimits(Flush(interval="5s"), clock=clock)
    next_end(limits, {"0": 0}, {"0": 0})

    first = next_end(limits, {"0": 0}, {"0": 10})
    clock.now += 4.9
    still = next_end(limits, {"0": 0}, {"0": 20})
    clock.now += 0.1
    due = next_end(limits, {"0": 0}, {"0": 30})

    assert (first, still, due) == (None, None, {"0": 30})


def test_events_that_came_during_a_batch_have_waited_since_it_was_planned() -> None:
    clock = Clock()
    limits = BatchLimits(Flush(interval="5s", rows=10), clock=clock)
    assert next_end(limits, {"0": 0}, {"0": 10}) == {"0": 10}
    clock.now += 5

    due = next_end(limits, {"0": 10}, {"0": 11})

    assert due == {"0": 11}


def test_batch_is_due_at_once_when_enough_rows_wait_and_takes_only_so_many() -> None:
    limits = BatchLimits(Flush(rows=100), clock=Clock())

    due = next_end(limits, {"0": 0, "1": 0}, {"0": 300, "1": 100})

    assert due == {"0": 75, "1": 25}


def test_batch_is_due_when_enough_bytes_wait_by_the_size_that_events_had() -> None:
    limits = BatchLimits(Flush(bytes="1MB"), clock=Clock())
    limits.learn(rows=10, size=10 * 1024)

    due = next_end(limits, {"0": 0}, {"0": 5000})

    assert due == {"0": 1024}


def test_batch_is_due_when_nothing_arrives_for_the_idle_time() -> None:
    clock = Clock()
    limits = BatchLimits(Flush(interval="60s", idle="1s"), clock=clock)
    next_end(limits, {"0": 0}, {"0": 0})

    next_end(limits, {"0": 0}, {"0": 1})
    clock.now += 0.9
    arrives = next_end(limits, {"0": 0}, {"0": 2})
    clock.now += 0.9
    waits = next_end(limits, {"0": 0}, {"0": 2})
    clock.now += 0.1
    due = next_end(limits, {"0": 0}, {"0": 2})

    assert (arrives, waits, due) == (None, None, {"0": 2})


def test_nothing_is_due_when_nothing_waits() -> None:
    limits = BatchLimits(Flush(), hurry=True, clock=Clock())

    assert next_end(limits, {"0": 5}, {"0": 5}) is None


def test_in_a_hurry_everything_is_due_at_once() -> None:
    limits = BatchLimits(Flush(rows=10), hurry=True, clock=Clock())

    assert next_end(limits, {"0": 0}, {"0": 3}) == {"0": 3}
    assert next_end(limits, {"0": 0}, {"0": 30}) == {"0": 10}


def test_rows_are_shared_out_so_that_none_is_left_over() -> None:
    limits = BatchLimits(Flush(rows=10), hurry=True, clock=Clock())

    due = next_end(limits, {"0": 0, "1": 0, "2": 0}, {"0": 7, "1": 7, "2": 7})

    assert due is not None
    assert sum(due.values()) == 10


def test_the_first_batch_is_one_task_as_nothing_is_known_about_the_size_of_events() -> None:
    limits = BatchLimits(Flush(), hurry=True, clock=Clock())

    assert next_end(limits, {"0": 0}, {"0": 900_000}) == {"0": 50_000}


def test_a_batch_after_one_that_was_lost_takes_half_and_one_that_landed_takes_all_again() -> None:
    limits = BatchLimits(Flush(rows=1000), hurry=True, clock=Clock())

    limits.shrink()
    limits.shrink()
    quarter = next_end(limits, {"0": 0}, {"0": 5000})
    limits.learn(rows=250, size=250)
    half = next_end(limits, {"0": 0}, {"0": 5000})
    limits.learn(rows=500, size=500)
    whole = next_end(limits, {"0": 0}, {"0": 5000})

    assert (quarter, half, whole) == ({"0": 250}, {"0": 500}, {"0": 1000})


def test_batches_that_are_lost_again_and_again_still_take_something() -> None:
    limits = BatchLimits(Flush(rows=10), hurry=True, clock=Clock())

    for _ in range(100):
        limits.shrink()

    assert next_end(limits, {"0": 0}, {"0": 5000}) == {"0": 1}


@pytest.mark.parametrize(
    ("flush", "cores", "expected"),
    [
        (Flush(), 1, (1_000_000, 128 * 2**20)),
        (Flush(), 4, (1_000_000, 128 * 2**20)),
        (Flush(), 8, (2_000_000, 256 * 2**20)),
        (Flush(rows=1_000), 8, (1_000, 256 * 2**20)),
        (Flush(bytes="1MB"), 8, (2**20, 2**20)),
    ],
)
def test_limits_that_the_file_does_not_set_grow_with_the_cores(
    flush: Flush, cores: int, expected: tuple[int, int]
) -> None:
    limits = BatchLimits(flush, hurry=True, clock=Clock())
    limits.learn(rows=1, size=1)

    allowed = limits.allowed(10**9, cores)

    assert allowed == Allowance(*expected)


@pytest.mark.parametrize(("size", "expected"), [(100, 50_000), (1_000, 16_777), (2**30, 1)])
def test_large_events_need_fewer_for_a_task_of_their_own(size: int, expected: int) -> None:
    limits = BatchLimits(Flush())
    limits.learn(rows=1, size=size)

    assert limits.rows_a_task == expected
    assert BatchLimits(Flush()).rows_a_task == 50_000
