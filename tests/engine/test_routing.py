"""One table for each value of a column, made as the values come."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from conftest import TopicFactory
from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.watch.state import RunState
from support.forks import run_until_killed
from support.kafka import Broker
from support.ledger import assert_each_once, dead_letters, table_ids


def write_file(folder: Path, broker: Broker, topic: str, table: str) -> Path:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "{broker.address}", topics: [{topic}], format: json}}
tables:
  events:
    from: clicks
{table}
"""
    )
    return file


def tables(folder: Path) -> dict[str, DeltaTable]:
    return {path.parent.name: DeltaTable(path.parent) for path in folder.glob("*/_delta_log")}


def columns(table: DeltaTable) -> set[str]:
    return {field.name for field in table.schema().fields}


def ids(folder: Path, names: Iterable[str]) -> list[Any]:
    return [found for name in names for found in table_ids(folder / name)]


def test_each_value_gets_a_table_with_the_columns_that_its_events_fill(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    table = """\
    route: lake/events_{type}
    max_tables: 3
    metadata: [_offset]"""
    file = write_file(tmp_path, broker, name, table)
    first = [
        {"event_id": 0, "type": "view", "page": "a"},
        {"event_id": 1, "type": "cart", "item": {"sku": 1, "count": 2}},
        {"event_id": 2, "type": "view", "item": {"sku": 3}},
        {"event_id": 3, "type": None},
        {"event_id": 4, "type": "../" * 40},
    ]
    more = [
        {"event_id": 5, "type": "view", "page": "b", "new": True},
        {"event_id": 6, "type": "a/../b"},
        {"event_id": 7, "type": "one too many"},
        {"event_id": 8, "type": "cart"},
    ]

    for events in (first, more):
        broker.produce(name, [json.dumps(event).encode() for event in events])
        book = RunState(Pipeline.from_file(file))
        run_inline(Pipeline.from_file(file), book.watch)

    made = tables(tmp_path / "lake")
    assert {each: columns(table) for each, table in made.items() if each.startswith("events")} == {
        "events_view": {"event_id", "type", "page", "item", "_offset", "new"},
        "events_cart": {"event_id", "type", "item", "_offset"},
        "events_a_.._b": {"event_id", "type", "_offset"},
    }
    assert made["events_view"].to_pyarrow_table().schema.field("item").type.num_fields == 1
    letters = dead_letters(tmp_path / "lake" / "shop_dead_letters")
    bad = {
        json.loads(one["payload"])["event_id"]: (one["stage"], one["code"], one["error"]) for one in letters
    }
    assert bad == {
        3: ("write", "bad_route", "type: no value that says which table the event belongs to"),
        4: ("write", "bad_route", "type: expected 1 to 100 characters for the path of a table, got 120"),
        7: (
            "write",
            "too_many_tables",
            "no table for one_too_many: there are 3, as `max_tables` allows",
        ),
    }
    watched = {one.name: one.written for one in book.view().tables}
    assert watched == {"events": 0, "events/view": 1, "events/cart": 1, "events/a_.._b": 1}
    told = status(Pipeline.from_file(file))
    assert {one.name: (one.rows, one.lag) for one in told.tables} == {
        "events/a_.._b": (1, 0),
        "events/cart": (2, 0),
        "events/view": (3, 0),
    }
    proof = verify(Pipeline.from_file(file), deep=True)
    assert proof.sound, proof
    foreseen = {one.name: (one.action, one.refused) for one in plan_run(Pipeline.from_file(file)).tables}
    assert foreseen["events/view"] == ("nothing", None)
    assert_each_once(range(9), ids(tmp_path / "lake", set(made) - {"shop_dead_letters"}), list(bad))


def test_dead_letters_of_a_route_become_rows_of_new_tables(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    file = write_file(tmp_path, broker, name, "    route: lake/{type}\n    max_tables: 1")
    broker.produce(
        name, [b'{"event_id": %d, "type": "%s"}' % (i, [b"view", b"cart"][i % 2]) for i in range(10)]
    )
    run_inline(Pipeline.from_file(file))
    pipeline = Pipeline.from_file(file, ["tables.events.max_tables=5"])

    (told,) = replay(pipeline, DeadLetterFilter())
    run_inline(pipeline)

    assert (told.table, told.rows) == ("events", 5)
    assert_each_once(range(10), ids(tmp_path / "lake", ["view", "cart"]))
    assert verify(pipeline, deep=True).sound


def test_dead_letters_of_a_route_that_a_filter_leaves_out_leave_without_a_row(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    file = write_file(tmp_path, broker, name, "    route: lake/{type}\n    expect: {small: event_id < 5}")
    broker.produce(name, [b'{"event_id": %d, "type": "view"}' % i for i in range(10)])
    run_inline(Pipeline.from_file(file))
    write_file(tmp_path, broker, name, "    route: lake/{type}\n    where: event_id < 8")

    (told,) = replay(Pipeline.from_file(file), DeadLetterFilter())

    assert (told.rows, told.left_out) == (3, 2)
    assert dead_letters(tmp_path / "lake" / "shop_dead_letters") == []
    assert_each_once(range(8), ids(tmp_path / "lake", ["view"]))


def test_kill_between_the_commits_of_a_route_loses_and_repeats_nothing(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    file = write_file(
        tmp_path, broker, name, "    route: lake/{type}\n    schema: {event_id: long, type: string}"
    )
    kinds = ["view", "cart", "purchase", None]
    broker.produce(name, [json.dumps({"event_id": i, "type": kinds[i % 4]}).encode() for i in range(400)])

    run_until_killed(file, "table_committed:1")
    landed = {len(table_ids(tmp_path / "lake" / str(kind))) for kind in kinds[:3]}
    broker.produce(name, [b'{"event_id": 400, "type": "late"}'])
    run_inline(Pipeline.from_file(file))

    assert 100 in landed
    letters = [
        json.loads(one["payload"])["event_id"] for one in dead_letters(tmp_path / "lake/shop_dead_letters")
    ]
    assert_each_once(range(401), ids(tmp_path / "lake", ["view", "cart", "purchase", "late"]), letters)
