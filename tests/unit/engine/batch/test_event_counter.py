"""Events are counted once, however often their batch runs."""

from __future__ import annotations

from pathlib import Path

from lakefeed import Pipeline
from lakefeed.engine.batch.event_counter import EventCounter
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import BatchDone, RunEvent
from lakefeed.events import OffsetRange


class Batches:
    def __init__(self) -> None:
        self.done: list[BatchDone] = []

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, BatchDone):
            self.done.append(event)


def test_a_batch_that_ran_twice_for_its_columns_counts_its_events_once(tmp_path: Path) -> None:
    pipeline = Pipeline.model_validate(
        {
            "name": "shop",
            "sources": {"clicks": {"type": "generate", "rows": 1000, "partitions": 2}},
            "tables": {
                "inferred": {"path": str(tmp_path / "inferred"), "from": "clicks"},
                "declared": {
                    "path": str(tmp_path / "declared"),
                    "from": "clicks",
                    "schema": {"event_id": "long"},
                    "evolve": "ignore",
                },
            },
            "state": str(tmp_path / "state"),
        }
    )
    batches = Batches()

    run_inline(pipeline, batches)

    assert len(batches.done) > 1
    assert sum(one.read for one in batches.done) == 2000
    assert sum(one.new for one in batches.done) == 1000


def test_what_a_longer_batch_adds_to_one_that_was_read_is_counted() -> None:
    counter = EventCounter()

    first = counter.again([OffsetRange("a", 0, 10), OffsetRange("b", 5, 9)], {"a": 10, "b": 4})
    longer = counter.again([OffsetRange("a", 0, 30), OffsetRange("b", 5, 9)], {"a": 30, "b": 4})
    later = counter.again([OffsetRange("a", 30, 40)], {"a": 10})

    assert (first, longer, later) == (0, 14, 0)


def test_a_flow_that_is_behind_counts_what_no_other_has_read() -> None:
    counter = EventCounter()
    counter.again([OffsetRange("a", 100, 150)], {"a": 50})

    behind = counter.again([OffsetRange("a", 0, 90)], {"a": 90})
    between = counter.again([OffsetRange("a", 80, 110)], {"a": 30})
    all_of_it = counter.again([OffsetRange("a", 0, 200)], {"a": 200})

    assert (behind, between, all_of_it) == (0, 20, 150)


def test_a_partition_that_begins_anew_is_counted_anew() -> None:
    counter = EventCounter()
    counter.begin({"topic": 1})
    counter.again([OffsetRange("a", 0, 10)], {"a": 10})

    counter.begin({"topic": 1})
    still = counter.again([OffsetRange("a", 0, 10)], {"a": 10})
    counter.begin({"topic": 2})
    anew = counter.again([OffsetRange("a", 0, 10)], {"a": 10})

    assert (still, anew) == (10, 0)
