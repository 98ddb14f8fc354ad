"""The process is killed where it hurts, started again, and the ledger is checked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from conftest import TopicFactory
from lakefeed.engine.faultpoints import POINTS
from support.kafka import Broker
from support.lakefeed import run, start
from support.ledger import (
    assert_each_once,
    assert_versions_contiguous,
    dead_letters,
    duckdb_count,
    table_ids,
)

EVENTS = 3000
BAD = 100


def produce(broker: Broker, topic: str, first: int = 0) -> list[int]:
    """Good events, and after every thirtieth a broken one that carries its number as well."""
    numbers = range(first, first + EVENTS)
    payloads = [
        f'{{"event_id": {number}'.encode() if number % 30 == 0 else json.dumps({"event_id": number}).encode()
        for number in numbers
    ]
    broker.produce(topic, payloads)
    return list(numbers)


def pipeline(folder: Path, broker: Broker, topic: str) -> Path:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "{broker.address}", topics: [{topic}], format: json}}
tables:
  one: {{path: one, from: clicks, schema: {{event_id: long not null}}}}
  two: {{path: two, from: clicks, schema: {{event_id: long not null}}}}
flush: {{rows: 500}}
"""
    )
    return file


def check_ledger(folder: Path, produced: list[int]) -> None:
    letters = dead_letters(folder / "shop_dead_letters")
    for name in ("one", "two"):
        dead = [int(one["payload"].split(b":")[1]) for one in letters if one["table"] == name]
        assert_each_once(produced, table_ids(folder / name), dead)
        assert_versions_contiguous(folder / name)


@pytest.mark.parametrize("point", POINTS)
def test_restart_after_a_kill_loses_and_repeats_nothing(
    point: str, broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    produced = produce(broker, name)
    file = pipeline(tmp_path, broker, name)

    killed, _, said = run("run", str(file), "--once", env={"LAKEFEED_KILL_AT": f"{point}:2"})
    on_worker = point.startswith("task_")
    code, _, said_then = run("run", str(file), "--once")

    assert killed == (0 if on_worker else -9), said
    assert code == 0, said_then
    check_ledger(tmp_path, produced)


def test_kill_and_lost_checkpoint_together_lose_and_repeat_nothing(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    produced = produce(broker, name)
    file = pipeline(tmp_path, broker, name)
    run("run", str(file), "--once", env={"LAKEFEED_KILL_AT": "table_committed:3"})

    shutil.rmtree(tmp_path / ".lakefeed")
    code, _, said = run("run", str(file), "--once")

    assert code == 0, said
    check_ledger(tmp_path, produced)


def test_schema_changed_after_a_crash_between_letters_and_rows_loses_and_repeats_nothing(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    times = ['"2026-11-15T10:00:00Z"', "1794736800000"]
    broker.produce(name, [f'{{"event_id": {n}, "at": {times[n % 2]}}}'.encode() for n in range(1000)])
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "{broker.address}", topics: [{name}], format: json}}
tables:
  one: {{path: one, from: clicks, schema: {{event_id: long, at: timestamp}}}}
flush: {{rows: 600}}
"""
    )
    killed, _, said = run("run", str(file), "--once", env={"LAKEFEED_KILL_AT": "letters_committed"})
    assert killed == -9, said

    code, _, said = run("run", str(file), "--once", "--set", "tables.one.schema.at=timestamp(ms)")

    assert code == 0, said
    dead = [json.loads(one["payload"])["event_id"] for one in dead_letters(tmp_path / "shop_dead_letters")]
    assert_each_once(range(1000), table_ids(tmp_path / "one"), dead)
    assert table_ids(tmp_path / "one")


def test_running_pipeline_survives_a_broker_that_is_stopped_and_started(tmp_path: Path) -> None:
    with Broker() as broker:
        broker.create_topic("clicks", 2)
        produced = produce(broker, "clicks")
        file = pipeline(tmp_path, broker, "clicks")
        with start("run", str(file), "--set", "flush.interval=500ms") as process:
            process.wait_for(lambda: len(table_ids(tmp_path / "one")) == EVENTS - BAD)

            broker.stop()
            process.wait_for(lambda: "trying again" in process.stderr)
            broker.start()
            produced += produce(broker, "clicks", first=EVENTS)
            process.wait_for(lambda: len(table_ids(tmp_path / "two")) == 2 * (EVENTS - BAD))
            process.terminate()

            assert process.wait() == 0, process.stderr
        check_ledger(tmp_path, produced)


def test_sigterm_in_the_middle_ends_well_and_the_next_start_goes_on(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    produced = produce(broker, name)
    file = pipeline(tmp_path, broker, name)
    with start("run", str(file), "--set", "flush.rows=100", "--set", "flush.interval=100ms") as process:
        process.wait_for(lambda: len(table_ids(tmp_path / "one")) > 0)

        process.terminate()

        assert process.wait(60) == 0, process.stderr
        assert "Traceback" not in process.stderr
    half = len(table_ids(tmp_path / "one"))
    code, _, said = run("run", str(file), "--once")

    assert code == 0, said
    assert half < EVENTS - BAD
    check_ledger(tmp_path, produced)


def test_second_instance_on_this_machine_is_refused_with_one_sentence(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    file = pipeline(tmp_path, broker, name)
    with start("run", str(file)) as first:
        first.wait_for(lambda: DeltaTable.is_deltatable(str(tmp_path / "two")))

        code, _, said = run("run", str(file))

        assert code == 1
        assert "pipeline shop is already running on this machine" in said
        assert "Traceback" not in said


def test_second_instance_elsewhere_is_fenced_by_the_table(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    produced = produce(broker, name)
    file = pipeline(tmp_path, broker, name)
    settings = ["--set", "flush.rows=50", "--set", "flush.interval=50ms"]
    with (
        start("run", str(file), *settings) as first,
        start("run", str(file), *settings, "--set", f"state={tmp_path / 'elsewhere'}") as second,
    ):
        first.wait_for(lambda: not (first.running and second.running))

        loser = second if first.running else first
        code = loser.wait()
        said = loser.stderr
    run("run", str(file), "--once")

    assert code == 1
    assert "another instance of this pipeline has written" in said
    assert "Traceback" not in said
    check_ledger(tmp_path, produced)


def test_status_agrees_with_what_duckdb_counts(broker: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic(partitions=2)
    produce(broker, name)
    file = pipeline(tmp_path, broker, name)
    run("run", str(file), "--once")
    broker.produce(name, [b'{"event_id": 1}'] * 7)

    code, out, said = run("status", str(file), "--json")

    assert code == 0, said
    found = {table["name"]: table for table in json.loads(out)["tables"]}
    assert found["one"]["rows"] == duckdb_count(tmp_path / "one") == EVENTS - BAD
    assert found["one"]["lag"] == 7
    assert json.loads(out)["dead_letters"]["rows"] == 2 * BAD
