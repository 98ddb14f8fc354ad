"""Others change a table, or the broker loses events, while the stream runs: one stops or goes on, no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faults.meddling import MEDDLING
from faults.world import World
from support.drivers import Drivers
from support.kafka import Broker

TOGETHER = {
    "shape": ["column added", "column retyped", "repartitioned", "column widened"],
    "place": ["replaced by another writer", "dropped and recreated", "dropped"],
    "feature": ["column mapping turned on", "in-commit timestamps turned on", "constraint added"],
    "properties": ["row tracking turned on", "positions set to expire", "deletion vectors turned on"],
}


@pytest.mark.parametrize("what", TOGETHER)
def test_table_that_others_change_while_the_stream_runs_goes_on_or_stops_alone(
    what: str, broker: Broker, spark: Any, tmp_path: Path
) -> None:
    world, drivers = World(broker, tmp_path), Drivers(spark)
    world.produce(100)

    for number, kind in enumerate(TOGETHER[what]):
        world.meddle(drivers, kind, ("one", "two")[number % 2])
        world.check()


def test_every_way_of_meddling_is_tried() -> None:
    assert sorted(MEDDLING) == sorted(kind for kinds in TOGETHER.values() for kind in kinds)


def test_log_of_a_broker_that_is_cut_is_told_as_a_loss_and_read_on(
    broker: Broker, spark: Any, tmp_path: Path
) -> None:
    world, drivers = World(broker, tmp_path), Drivers(spark)
    world.produce(100)

    world.expire()
    world.check()
    world.truncate(drivers, 40, awake=True)
    world.check()
    world.truncate(drivers, 60, awake=False)
    world.check()

    assert len(world.missing["one"]) >= 30


def test_topic_that_is_made_anew_is_told_as_a_loss_and_read_from_its_beginning(
    broker: Broker, spark: Any, tmp_path: Path
) -> None:
    world, drivers = World(broker, tmp_path), Drivers(spark)
    world.produce(50)

    world.recreate_topic(drivers, 200, awake=True)
    world.check()
    world.recreate_topic(drivers, 30, awake=False)
    world.check()

    assert world.missing == {"one": set(), "two": set()}


def test_large_events_among_small_ones_land_once(broker: Broker, spark: Any, tmp_path: Path) -> None:
    world = World(broker, tmp_path)
    world.produce(200)
    world.produce_large(6)
    world.produce(200)
    world.produce_large(2)

    world.run()

    world.check()
