"""The process is killed where it hurts, started again, and the ledger is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from conftest import TopicFactory
from faults.world import World
from lakefeed import Fenced, Pipeline
from lakefeed.engine.faultpoints import END_POINT
from support.drivers import Drivers
from support.faultpoints import JOIN_POINTS, POINTS
from support.kafka import Broker
from support.lakefeed import run, start
from support.ledger import assert_each_once, dead_letters, duckdb_count, table_ids
from support.offline import drain
from support.processes import wait_until


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> World:
    return World(broker, tmp_path, partitions=2)


@pytest.mark.parametrize("point", POINTS)
def test_restart_after_a_kill_loses_and_repeats_nothing(point: str, world: World, drivers: Drivers) -> None:
    world.produce(300)

    ended = world.crash(drivers, point, nth=2)
    at_the_crash = world.landed()
    world.check()
    world.run()

    assert ended.code == (0 if point.startswith("task_") else -9), ended.said
    assert at_the_crash["one"] == 290 if ended.code == 0 else at_the_crash["one"] < 290
    world.check()


@pytest.mark.parametrize(("point", "nth"), [("files_written", 2), ("table_committed", 1), (END_POINT, 1)])
def test_restart_after_a_kill_replaces_a_table_with_one_whole_run(
    point: str, nth: int, world: World, drivers: Drivers
) -> None:
    world.produce(200)

    ended = world.replace(drivers, 300, point, nth)

    assert ended.code == -9, ended.said


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("task_written", 2),
        ("task_shaped", 2),
        ("letters_committed", 1),
    ],
)
def test_kill_of_a_table_that_spark_shapes_loses_and_repeats_nothing(
    point: str, nth: int, drivers: Drivers, tmp_path: Path
) -> None:
    schema = "{event_id: long, brand: string}"
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 600, partitions: 2, bad_ratio: 0.01}}}}
tables:
  turned:
    path: turned
    from: clicks
    schema: {schema}
    evolve: {{new_column: ignore}}
    select: ["event_id", "reverse(brand) AS turned", "1 / (event_id % 100) AS share"]
  plain: {{path: plain, from: clicks, schema: {schema}, evolve: {{new_column: ignore}}}}
flush: {{rows: 150}}
"""
    )
    workers = f":{tmp_path / 'killed'}" if point.startswith("task_") else ""

    ended = drivers.run(file, kill_at=f"{point}:{nth}{workers}")
    Pipeline.from_file(file).run(once=True)

    assert ended.code == (0 if workers else -9), ended.said
    assert not workers or (tmp_path / "killed").exists()
    dead = [one for one in dead_letters(tmp_path / "shop_dead_letters") if one["table"] == "turned"]
    divided = [json.loads(one["payload"])["event_id"] for one in dead if one["code"] == "DIVIDE_BY_ZERO"]
    cut = {number for number in range(600) if int((number + 1) * 0.01) > int(number * 0.01)}
    assert_each_once([number for number in range(0, 600, 100) if number not in cut], divided)
    assert_each_once(set(range(600)) - cut, table_ids(tmp_path / "turned"), divided)
    assert len(dead) == len(divided) + len(cut)
    assert_each_once(set(range(600)) - cut, table_ids(tmp_path / "plain"))


@pytest.mark.parametrize("point", JOIN_POINTS)
def test_kill_while_a_late_table_leaves_the_others_or_joins_them_loses_and_repeats_nothing(
    point: str, world: World, drivers: Drivers
) -> None:
    world.produce(600)
    both = world.file.read_text()
    world.file.write_text("".join(line for line in both.splitlines(True) if "two:" not in line))
    drain(world.file)
    world.file.write_text(both)

    driver = drivers.start(
        world.file, "flush.interval=50ms", once=False, env={"LAKEFEED_KILL_AT": f"{point}:1"}
    )
    ended = driver.wait()
    at_the_kill = world.landed()
    world.check()
    world.produce(100)
    world.run()

    assert ended.code == -9, ended.said
    assert at_the_kill["two"] >= (0 if point == "tables_parted" else 480)
    world.check()


def test_kill_and_lost_checkpoint_together_lose_and_repeat_nothing(world: World, drivers: Drivers) -> None:
    world.produce(300)
    ended = world.crash(drivers, "table_committed", nth=3)
    assert ended.code == -9, ended.said

    world.lose_checkpoint()
    world.run()

    world.check()


def test_schema_changed_after_a_crash_between_letters_and_rows_loses_and_repeats_nothing(
    broker: Broker, topic: TopicFactory, drivers: Drivers, tmp_path: Path
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
    ended = drivers.run(file, kill_at="letters_committed")
    assert ended.code == -9, ended.said

    Pipeline.from_file(file, ["tables.one.schema.at=timestamp(ms)"]).run(once=True)

    dead = [json.loads(one["payload"])["event_id"] for one in dead_letters(tmp_path / "shop_dead_letters")]
    assert_each_once(range(1000), table_ids(tmp_path / "one"), dead)
    assert table_ids(tmp_path / "one")


def test_running_pipeline_survives_a_broker_that_is_killed_and_started(
    spark: Any, drivers: Drivers, tmp_path: Path
) -> None:
    with Broker() as broker:
        world = World(broker, tmp_path, partitions=2)
        world.produce(300)
        driver = drivers.start(world.file, "flush.interval=500ms", once=False)
        wait_until(lambda: world.landed()["one"] == 290, 120, lambda: driver.said)

        broker.kill()
        wait_until(lambda: "does not answer" in driver.said, 120, lambda: driver.said)
        broker.start()
        world.produce(300)
        wait_until(lambda: world.landed()["two"] == 580, 120, lambda: driver.said)
        driver.kill()
        driver.wait()
        world.run()

        world.check()


def test_sigterm_in_the_middle_ends_well_and_the_next_start_goes_on(world: World) -> None:
    world.produce(3000)
    settings = ["--set", "flush.rows=30", "--set", "flush.interval=100ms"]
    with start("run", str(world.file), "--once", *settings) as process:
        process.wait_for(lambda: world.landed()["one"] > 0)

        process.terminate()

        assert process.wait(120) == 0, process.stderr
        assert "Traceback" not in process.stderr
    half = world.landed()["one"]
    world.write(flush="{rows: 3000}")
    world.run()

    assert half < 2900
    world.check()


def test_jvm_that_is_killed_ends_the_run_at_once_and_the_next_start_goes_on(world: World) -> None:
    world.produce(300)
    with start("run", str(world.file)) as process:
        process.wait_for(lambda: world.landed()["one"] == 290)
        java = next(one for one in psutil.Process(process.pid).children() if one.name() == "java")

        java.kill()

        assert process.wait(120) == 1, process.stderr
        assert "Spark's JVM has exited" in process.stderr
        assert "The same batch failed" not in process.stderr
        assert "Traceback" not in process.stderr
    world.produce(300)
    world.run()

    world.check()


def test_second_instance_on_this_machine_is_refused_with_one_sentence(world: World, drivers: Drivers) -> None:
    first = drivers.start(world.file, once=False)
    wait_until(lambda: DeltaTable.is_deltatable(str(world.folder / "two")), 120, lambda: first.said)

    with pytest.raises(Fenced) as refused:
        world.run()
    first.kill()
    first.wait()

    assert str(refused.value).startswith("pipeline shop is already running on this machine")


def test_second_instance_elsewhere_is_fenced_by_the_table(world: World, drivers: Drivers) -> None:
    world.produce(300)
    both = [
        drivers.start(world.file, "flush.interval=50ms", f"state={world.folder / state}", once=False)
        for state in ("here", "elsewhere")
    ]

    def one_has_ended() -> bool:
        world.produce(20)
        return not all(driver.running for driver in both)

    wait_until(one_has_ended, 120, lambda: "".join(driver.said for driver in both), every=0.3)
    loser, winner = sorted(both, key=lambda driver: driver.running)
    ended = loser.wait()
    winner.kill()
    winner.wait()
    world.run()

    assert ended.code == 1
    assert "another instance of this pipeline has written" in ended.said
    assert "Traceback" not in ended.said
    world.check()


def test_status_agrees_with_what_duckdb_counts(world: World) -> None:
    world.produce(300)
    world.run()
    world.broker.produce(world.topic, [b'{"event_id": 1}'] * 7)

    code, out, said = run("status", str(world.file), "--json")

    assert code == 0, said
    found = {table["name"]: table for table in json.loads(out)["tables"]}
    assert found["one"]["rows"] == duckdb_count(world.folder / "one") == 290
    assert found["one"]["lag"] == 7
    assert json.loads(out)["dead_letters"]["rows"] == 20
