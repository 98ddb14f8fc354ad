"""What becomes of events that do not fit their table: every rule, and changes while events flow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType

from conftest import TopicFactory
from lakefeed import Pipeline, TableError
from lakefeed.engine import flow_run
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import Committed, RunEvent, SourceTrouble
from support.kafka import Broker
from support.ledger import assert_each_once, dead_letters, table_ids

RULES = """\
  added: {path: added, from: clicks, schema: {event_id: long not null, meta: {struct}}}
  ignored: {path: ignored, from: clicks, schema: {event_id: long not null, meta: {struct}}, evolve: ignore}
  rescued:
    path: rescued
    from: clicks
    schema: {event_id: long not null, meta: {struct}}
    evolve: {new_column: rescue, type_change: rescue}
  refused:
    path: refused
    from: clicks
    schema: {event_id: long not null, meta: {struct}}
    evolve: {new_column: dead_letter}
"""


def pipeline(folder: Path, broker: Broker, topic: str, tables: str, more: str = "") -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "{broker.address}", topics: [{topic}], format: json}}
tables:
{tables.replace("{struct}", '"struct<ip: string>"')}
{more}
"""
    )
    return Pipeline.from_file(file)


def rows(table: Path) -> list[dict[str, Any]]:
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["event_id"])


def test_each_table_keeps_its_own_rules_about_one_stream(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    broker.produce(
        name,
        [
            b'{"event_id": 1, "meta": {"ip": "a"}}',
            b'{"event_id": 2, "meta": {"ip": "b", "port": 80}, "new": "x"}',
            b'{"event_id": 3, "meta": {"ip": 7}}',
            b'{"event_id": "no number"}',
            b'{"EVENT_ID": 5, "a\\u0000": 1, "_rescued": 2}',
        ],
    )

    run_inline(pipeline(tmp_path, broker, name, RULES))

    a = {"event_id": 1, "meta": {"ip": "a"}}
    b = {"event_id": 2, "meta": {"ip": "b"}}
    assert rows(tmp_path / "added") == [
        {"event_id": 1, "meta": {"ip": "a", "port": None}, "new": None},
        {"event_id": 2, "meta": {"ip": "b", "port": 80}, "new": "x"},
    ]
    assert rows(tmp_path / "ignored") == [a, b, {"event_id": 5, "meta": None}]
    assert rows(tmp_path / "rescued") == [
        {**a, "_rescued": None},
        {**b, "_rescued": '{"meta":{"port":80},"new":"x"}'},
        {"event_id": 3, "meta": {"ip": None}, "_rescued": '{"meta":{"ip":7}}'},
        {"event_id": 5, "meta": None, "_rescued": '{"a\\u0000":1,"_rescued":2}'},
    ]
    assert rows(tmp_path / "refused") == [a]
    letters = dead_letters(tmp_path / "shop_dead_letters")
    assert {(one["table"], one["offset"]): (one["stage"], one["code"], one["error"]) for one in letters} == {
        ("added", 2): ("schema", "wrong_type", "meta.ip: expected string, got 7"),
        ("added", 3): ("schema", "wrong_type", 'event_id: expected long, got "no number"'),
        ("added", 4): (
            "schema",
            "bad_name",
            "`a\\u0000`: a column name may not contain the character NUL, so this new column cannot be added",
        ),
        ("ignored", 2): ("schema", "wrong_type", "meta.ip: expected string, got 7"),
        ("ignored", 3): ("schema", "wrong_type", 'event_id: expected long, got "no number"'),
        ("rescued", 3): ("schema", "wrong_type", 'event_id: expected long, got "no number"'),
        ("refused", 1): ("schema", "new_column", "meta.port: the table has no such column, got 80"),
        ("refused", 2): ("schema", "wrong_type", "meta.ip: expected string, got 7"),
        ("refused", 3): ("schema", "wrong_type", 'event_id: expected long, got "no number"'),
        ("refused", 4): ("schema", "new_column", "`a\\u0000`: the table has no such column, got 1"),
    }


def test_rule_to_fail_stops_its_table_and_no_other_and_a_changed_file_goes_on_from_there(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    tables = """\
  strict: {path: strict, from: clicks, schema: {event_id: long}, evolve: RULE}
  other: {path: other, from: clicks, schema: {event_id: long}}"""
    broker.produce(name, [b'{"event_id": 1}', b'{"event_id": 2, "new": 1.5}'])

    with pytest.raises(TableError) as stopped:
        run_inline(pipeline(tmp_path, broker, name, tables.replace("RULE", "fail")))

    assert str(stopped.value) == (
        "table strict: events have new columns and `evolve.new_column` is fail: new double.\n"
        "Add them to `schema`, name them in `drop`, or choose another rule, then start again."
    )
    assert table_ids(tmp_path / "strict") == []

    broker.produce(name, [b'{"event_id": "three"}'])
    with pytest.raises(TableError) as stopped:
        run_inline(pipeline(tmp_path, broker, name, tables.replace("RULE", "{type_change: fail}")))

    assert str(stopped.value) == (
        f"table strict: the event at offset 2 of {name}, partition 0 does not fit and "
        '`evolve.type_change` is fail: event_id: expected long, got "three".\n'
        "Correct `schema` or the producer, or choose another rule, then start again."
    )

    run_inline(pipeline(tmp_path, broker, name, tables.replace("RULE", "add")))

    assert sorted(table_ids(tmp_path / "strict")) == [1, 2] == sorted(table_ids(tmp_path / "other"))
    letters = dead_letters(tmp_path / "shop_dead_letters")
    assert sorted((one["table"], one["offset"]) for one in letters) == [("other", 2), ("strict", 2)]


def test_ten_schema_changes_while_events_flow_cost_one_repeated_batch_each_and_lose_nothing(
    broker: Broker, topic: TopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    shapes = [{f"column_{step}": step, "nested": {f"part_{step}": "x"}} for step in range(10)]
    broker.produce(name, [json.dumps({"event_id": i, **shapes[i // 100]}).encode() for i in range(1000)])
    planned: list[str] = []
    passing: Callable[[str], None] = flow_run.passing
    monkeypatch.setattr(flow_run, "passing", lambda point: (planned.append(point), passing(point)))
    tables = "  events: {path: events, from: clicks, metadata: [_offset]}"

    run_inline(pipeline(tmp_path, broker, name, tables, "flush: {rows: 100}"))

    assert_each_once(range(1000), table_ids(tmp_path / "events"))
    found = rows(tmp_path / "events")
    assert all(row[f"column_{i // 100}"] == i // 100 for i, row in enumerate(found))
    assert all(row["nested"][f"part_{i // 100}"] == "x" for i, row in enumerate(found))
    assert planned.count("batch_planned") == 10 + len(shapes)
    history = [json.loads(one["lakefeed"]) for one in DeltaTable(tmp_path / "events").history()]
    assert [one["columns"] for one in history if one["kind"] == "evolve"][-1] == {
        "column_1": "long",
        "nested": "struct<part_1: string>",
    }


def test_table_altered_from_outside_while_the_stream_runs_gets_every_row_once(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    broker.produce(name, [b'{"event_id": %d}' % i for i in range(300)])
    tables = "  events: {path: events, from: clicks, schema: {event_id: long}}"

    class Meddler:
        """Adds a column from outside between two batches."""

        def __init__(self) -> None:
            self.troubles: list[str] = []

        def __call__(self, event: RunEvent) -> None:
            match event:
                case Committed():
                    if event.rows and event.version < 3:
                        delta = DeltaTable(tmp_path / "events")
                        delta.alter.add_columns(
                            [Field(f"from_outside_{event.version}", PrimitiveType("string"))]
                        )
                case SourceTrouble(text=text):
                    self.troubles.append(text)

    meddler = Meddler()
    shop = pipeline(tmp_path, broker, name, tables, "flush: {rows: 100}")

    run_inline(shop, meddler)

    assert_each_once(range(300), table_ids(tmp_path / "events"))
    assert "from_outside_1" in rows(tmp_path / "events")[0]
    assert [text for text in meddler.troubles if text] == [
        f"{tmp_path / 'events'} was changed by another writer while a batch was being written: "
        "its columns have changed. The batch runs again."
    ]


def test_column_that_the_table_has_and_the_file_drops_is_null_from_then_on(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    tables = "  events: {path: events, from: clicks, drop: [DROP]}"
    for number, drop in enumerate(["nothing", "secret"]):
        broker.produce(name, [json.dumps({"event_id": number, "secret": "x", "other": 1}).encode()])
        run_inline(pipeline(tmp_path, broker, name, tables.replace("DROP", drop)))

    assert rows(tmp_path / "events") == [
        {"event_id": 0, "secret": "x", "other": 1},
        {"event_id": 1, "secret": None, "other": 1},
    ]


def test_names_are_changed_fields_left_out_and_origins_kept_as_the_file_says(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    broker.produce(name, [b'{"event_id": 1, "user name": "ann", "debug": {"x": 1}, "_topic": 3}'])
    tables = """\
  inferred:
    path: inferred
    from: clicks
    schema: infer
    drop: [debug, _topic]
    rename: {"user name": user_name}
    metadata: [_topic, _offset]
  declared:
    path: declared
    from: clicks
    schema: {event_id: long, who: string}
    evolve: ignore
    rename: {"user name": who}
    metadata: {_offset: position}
  documented:
    path: documented
    from: clicks
    schema: {event_id: long}
    evolve: rescue
    drop: [debug]
    metadata: {as: origin}
"""

    run_inline(pipeline(tmp_path, broker, name, tables))

    assert rows(tmp_path / "inferred") == [{"event_id": 1, "user_name": "ann", "_topic": name, "_offset": 0}]
    assert rows(tmp_path / "declared") == [{"event_id": 1, "who": "ann", "position": 0}]
    (row,) = rows(tmp_path / "documented")
    assert row["_rescued"] == '{"user name":"ann","_topic":3}'
    origin = json.loads(row["origin"])
    assert origin.pop("timestamp").endswith("Z")
    assert origin == {"topic": name, "partition": 0, "offset": 0, "key": None, "headers": None}
