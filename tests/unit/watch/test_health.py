"""What is wrong, in words that an engineer on call can act on."""

from __future__ import annotations

import pytest

from lakefeed import Pipeline
from lakefeed.engine.run_events import (
    DeadLettersWritten,
    RefusingMany,
    SourceSeen,
    SourceStopped,
    SourceTrouble,
    TableMoved,
    TableReached,
    UnappliedCounted,
)
from lakefeed.watch.health import concerns, reasons, remarks
from support.watched import NOON, WatchedRun, shop


def test_a_run_is_not_ready_before_its_sources_have_answered() -> None:
    run = WatchedRun()

    said = reasons(run.state.view(), run.pipeline)

    assert said == [
        "starting: source clicks has not been read yet",
        "starting: source orders has not been read yet",
    ]


def test_a_run_in_which_all_is_well_is_ready() -> None:
    run = WatchedRun()
    run.all_is_well()

    assert reasons(run.state.view(), run.pipeline) == []
    assert concerns(run.state.view(), run.pipeline) == []


def test_a_stopped_broker_a_refused_table_and_many_bad_records_each_say_what_to_do() -> None:
    run = WatchedRun()
    run.trouble_everywhere()

    broker, table, letters = concerns(run.state.view(), run.pipeline)

    assert (broker.level, broker.what, broker.since) == ("down", "source orders", NOON)
    assert broker.text == "broker:9092 does not answer: Connection refused"
    assert broker.remedy == (
        "Check that it runs, and that this machine reaches it. "
        "Nothing is lost: it is tried again until it works, for at most 10m."
    )
    assert (table.level, table.what) == ("down", "table refunds")
    assert table.text == (
        "takes no events: /lake/refunds is partitioned by ['day'], the pipeline file says nothing"
    )
    assert table.remedy.startswith(
        "Change `partition_by` or choose another path. Then start the pipeline again"
    )
    assert (letters.level, letters.what) == ("warn", "table clicks")
    assert letters.text == (
        "25 of the last 125 events (20.0%) became dead letters, "
        "most often bad_json: the text ends inside a string"
    )
    assert "/lake/shop_dead_letters" in letters.remedy


def test_dead_letters_are_no_concern_before_the_run_tells_that_they_are_many() -> None:
    run = WatchedRun()
    run.all_is_well()
    run.letters("clicks", "clicks", 50)
    view = run.state.view()

    assert reasons(view, run.pipeline) == []
    assert (concerns(view, run.pipeline), remarks(view)) == ([], [])
    assert {table.state for table in view.tables} == {"up"}


@pytest.mark.parametrize(("count", "what"), [(2, "tables t0 and t1"), (5, "5 tables")])
def test_what_is_refused_alike_by_several_tables_is_one_concern(count: int, what: str) -> None:
    tables = {f"t{number}": {"path": f"/lake/t{number}", "from": "clicks"} for number in range(count)}
    run = WatchedRun(shop(sources={"clicks": {"type": "generate"}}, tables=tables))
    run.all_is_well()
    for name in tables:
        run.tell(RefusingMany(name, "clicks", "9 of the last 90 events (10.0%) became dead letters", "no"))

    (letters,) = concerns(run.state.view(), run.pipeline)

    assert (letters.what, letters.since) == (what, NOON)
    assert letters.text == "9 of the last 90 events (10.0%) became dead letters, no"
    assert len(remarks(run.state.view())) == count


def test_a_source_that_has_stopped_and_a_batch_that_was_lost_are_told() -> None:
    run = WatchedRun()
    run.all_is_well()

    run.tell(SourceStopped("orders", "source orders: topic 'orders' does not exist.\nCreate the topic."))
    run.tell(SourceTrouble("clicks", "Spark lost a batch: a worker died"))

    assert reasons(run.state.view(), run.pipeline) == [
        "source clicks: Spark lost a batch: a worker died",
        "source orders: has stopped: topic 'orders' does not exist",
    ]


def test_lag_beyond_max_lag_makes_a_run_not_ready() -> None:
    run = WatchedRun(shop(ready={"max_lag": 50}))
    run.all_is_well()

    run.tell(SourceSeen("clicks", {"0": 150}))
    at_the_limit = reasons(run.state.view(), run.pipeline)
    run.tell(SourceSeen("clicks", {"0": 151}))

    assert at_the_limit == []
    assert reasons(run.state.view(), run.pipeline) == [
        "source clicks: 51 events are waiting, more than ready.max_lag: 50"
    ]


def test_a_table_that_catches_up_by_itself_does_not_make_a_run_not_ready() -> None:
    run = WatchedRun(shop(ready={"max_lag": 50}))
    run.all_is_well()
    run.tell(SourceSeen("orders", {"0": 1_000_000}))
    run.tell(TableReached("orders", "orders", {"0": 999_990}))
    run.tell(TableReached("refunds", "orders", {"0": 0}))

    run.tell(
        TableMoved("refunds", "orders", "1,000,000 events behind the other tables of orders", apart=True)
    )
    apart = run.state.view()
    run.tell(TableMoved("refunds", "orders", "has caught up with the other tables of orders", apart=False))
    together = run.state.view()

    assert reasons(apart, run.pipeline) == []
    assert remarks(apart) == ["table refunds: catching up with source orders, 1,000,000 events behind"]
    assert next(one.lag for one in apart.sources if one.name == "orders") == 1_000_000
    assert reasons(together, run.pipeline) == [
        "source orders: 1,000,000 events are waiting, more than ready.max_lag: 50"
    ]
    assert remarks(together) == []


def test_what_a_source_remarks_is_a_warning_until_it_is_over() -> None:
    run = WatchedRun()
    run.all_is_well()
    run.tell(SourceSeen("clicks", {"0": 150}, remark="the queue is away\nLook at the network."))

    (concern,) = concerns(run.state.view(), run.pipeline)
    said, not_ready = remarks(run.state.view()), reasons(run.state.view(), run.pipeline)
    run.tell(SourceSeen("clicks", {"0": 150}))

    assert (concern.level, concern.what, concern.text) == ("warn", "source clicks", "the queue is away")
    assert concern.remedy == "Look at the network."
    assert (said, not_ready) == (["source clicks: the queue is away"], [])
    assert concerns(run.state.view(), run.pipeline) == []


def test_a_table_that_refuses_many_events_is_a_warning_with_its_reason_until_it_is_over() -> None:
    run = WatchedRun()
    run.all_is_well()
    run.letters("orders", "orders", 20)
    share, reason = "20 of 120 events (16.7%) became dead letters", "most often bad_json: no"
    run.tell(RefusingMany("orders", "orders", share, reason, "Declare `schema: {total: json}`."))

    (concern,) = concerns(run.state.view(), run.pipeline)
    said = remarks(run.state.view())
    states = {table.name: table.state for table in run.state.view().tables}
    run.tell(RefusingMany("orders", "orders"))

    assert (concern.level, concern.what, concern.text) == ("warn", "table orders", f"{share}, {reason}")
    assert concern.remedy.endswith("Declare `schema: {total: json}`.")
    assert said == [f"table orders: {share}, {reason}"]
    assert states == {"clicks": "up", "orders": "warn", "refunds": "up"}
    assert reasons(run.state.view(), run.pipeline) == remarks(run.state.view()) == []
    assert {table.state for table in run.state.view().tables} == {"up"}


def test_a_copy_whose_changes_are_dead_letters_is_warned_of_until_none_is_left() -> None:
    source = {"type": "postgres", "host": "db", "database": "shop", "tables": "public.*"}
    tables = {
        "copy": {"path": "/lake/copy", "from": "db", "mode": "upsert"},
        "log": {"path": "/lake/log", "from": "db"},
    }
    pipeline = Pipeline.model_validate({"name": "shop", "sources": {"db": source}, "tables": tables})
    run = WatchedRun(pipeline)
    run.state.watch(UnappliedCounted("copy", 1))
    for table in tables:
        run.state.watch(DeadLettersWritten(table, "db", {("schema", "out_of_range"): 2}))

    (concern,) = concerns(run.state.view(), pipeline)
    text = "3 changes are dead letters: the rows of their keys may be older than those of the database"
    assert (concern.level, concern.what, concern.text) == ("warn", "table copy", text)
    assert "lakefeed dead-letters replay" in concern.remedy and "--table copy --yes" in concern.remedy
    assert f"table copy: {text}" in remarks(run.state.view())
    assert {one.name: one.state for one in run.state.view().tables} == {"copy": "warn", "log": "new"}

    run.state.watch(UnappliedCounted("copy", 0))
    assert concerns(run.state.view(), pipeline) == []
