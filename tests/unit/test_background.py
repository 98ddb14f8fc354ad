"""A run beside the program: started, stopped, waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from lakefeed import Run, RunResult, TableError, TableResult, UsageError

RESULT = RunResult("shop", {"events": TableResult("events", "/lake/events", rows=1)}, 3.0)
runs: list[Run] = []


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    yield
    for run in runs:
        run.stop()
        run.wait(10)
    runs.clear()


def until_stopped(stop: threading.Event) -> None:
    assert stop.wait(30)


def fail(stop: threading.Event) -> None:
    raise TableError("table events: it cannot be written")


def started(
    work: Callable[[threading.Event], None] = until_stopped, name: str = "shop", has_own_spark: bool = False
) -> Run:
    run = Run(name, "/state", work, lambda: RESULT, has_own_spark=has_own_spark)
    run.begin()
    if work is until_stopped:
        runs.append(run)
    return run


def test_a_run_goes_on_until_it_is_stopped_and_answers_what_it_did() -> None:
    run = started()
    assert run.running
    assert repr(run) == "<Run of shop: running, 1 row>"
    with pytest.raises(TimeoutError, match=r"pipeline shop is still running; call stop\(\) to end it"):
        run.wait(0.05)

    run.stop()

    assert run.wait(30) is RESULT
    assert repr(run) == "<Run of shop: ended, 1 row>"


def test_the_error_that_ended_a_run_is_raised_by_wait_and_what_was_done_is_still_known() -> None:
    run = started(fail)

    with pytest.raises(TableError, match="cannot be written"):
        run.wait(30)

    assert run.result is RESULT
    assert repr(run) == "<Run of shop: failed, 1 row>"


def test_a_block_stops_its_run_at_the_end_and_raises_what_ended_it() -> None:
    with started() as run:
        assert run.running
    assert not run.running

    with pytest.raises(TableError), started(fail):
        pass
    with pytest.raises(ZeroDivisionError), started(fail):
        raise ZeroDivisionError


def test_a_pipeline_that_runs_already_is_refused_with_what_to_do() -> None:
    run = started()

    with pytest.raises(UsageError, match="pipeline shop already runs in this program"):
        started()
    other = started(name="other")
    run.stop()
    run.wait(30)

    assert started().running and other.running


def test_a_second_pipeline_is_refused_where_the_first_would_take_spark_with_it() -> None:
    started(has_own_spark=True)

    with pytest.raises(UsageError, match="will end its Spark session"):
        started(name="other")


def test_what_was_done_reads_as_lines() -> None:
    events = TableResult("events", "/lake/events", 990, {"bad_json": 8, "overflow": 2}, 2, 1, 2, 0.25)
    result = RunResult("shop", {"events": events, "idle": TableResult("idle", "/lake/idle")}, 3.21)

    assert repr(result) == (
        "shop: 990 rows, 10 new dead letters in 3.2 s\n"
        "  events: 990 rows, versions 1 to 2, 2 commits in 0.25 s, "
        "10 new dead letters (bad_json 8, overflow 2)\n"
        "  idle: 0 rows, no new version, 0 commits, 0 new dead letters"
    )
    assert (result.rows, result.commits, result.dead_letters) == (990, 2, {"bad_json": 8, "overflow": 2})
