"""A short visit to the laboratory: rules of the model one after the other, and one random walk."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.keyed_world import KeyedWorld
from faults.laboratory import Laboratory, Report
from faults.model import Model, walk
from faults.world import World
from support.drivers import Drivers
from support.kafka import Broker


def test_walk_through_every_fault_keeps_the_ledger(broker: Broker, spark: Any, tmp_path: Path) -> None:
    report = Report(seed=1, minutes=0)
    world = World(broker, tmp_path, note=report.note)
    rules = type("Rules", (Model,), {"begin": staticmethod(lambda: world), "drivers": Drivers(spark)})()

    for step in (
        lambda: rules.crash(200, "letters_committed", 1),
        lambda: rules.add_partition(),
        lambda: rules.lose_checkpoint(),
        lambda: rules.alter_from_outside("two"),
        lambda: rules.crash_while_the_schema_changes(150, "table_committed", 2),
        lambda: rules.compact("one"),
        lambda: rules.vacuum("one"),
        lambda: rules.checkpoint_log("two"),
        lambda: rules.spoil_checkpoint(),
        lambda: rules.run_twice_at_once(200),
        lambda: rules.vacuum("shop_dead_letters"),
        lambda: rules.widen_events(50),
        lambda: rules.run(),
    ):
        step()
        rules.ledger_holds()

    assert world.landed()["one"] == world.landed()["two"] == 580
    assert report.faults.total() == 13
    assert "| second instance | 1 |" in report.markdown()
    assert "13 faults, 0 duplicates, 0 losses, 0 findings." in report.markdown()


def test_walk_with_tables_of_changes_keeps_the_ledger(broker: Broker, spark: Any, tmp_path: Path) -> None:
    world, drivers = KeyedWorld(broker, tmp_path, partitions=2), Drivers(spark)
    world.produce(150)
    world.crash(drivers, "table_committed", 1)
    world.check()
    world.produce(100)
    world.run()
    world.compact("one")
    world.vacuum("one")
    world.check()
    world.produce(50)
    world.run()

    world.check()
    assert world.landed()["one"] == world.landed()["two"] == 290


def test_random_walk_keeps_the_ledger(broker: Broker, spark: Any, tmp_path: Path) -> None:
    worlds: list[World] = []

    def begin() -> World:
        worlds.append(World(broker, tmp_path))
        return worlds[-1]

    walk(begin, Drivers(spark), number=random.Random(2).randrange(1000), steps=4)

    assert len(worlds) == 1


class Diary:
    """A world that only writes down what is done to it; `ill` fails."""

    def __init__(self, ill: str = "") -> None:
        self.done: list[tuple[str, tuple[object, ...]]] = []
        self._ill = ill

    def __getattr__(self, name: str) -> Callable[..., None]:
        def note(*args: object, **named: object) -> None:
            self.done.append((name, (*args, *named.values())))
            assert name != self._ill, "the ledger does not hold"

        return note


def steps(number: int, ill: str = "") -> list[tuple[str, tuple[object, ...]]]:
    diaries: list[Any] = []

    def begin() -> Any:
        diaries.append(Diary(ill))
        return diaries[-1]

    drivers: Any = None
    walk(begin, drivers, number, steps=10)
    return list(diaries[0].done)


def test_walk_is_the_same_for_the_same_seed() -> None:
    assert steps(5) == steps(5)
    assert steps(5) != steps(6)


def test_walk_that_finds_something_tells_the_steps_to_it() -> None:
    with pytest.raises(AssertionError, match="the ledger does not hold") as found:
        steps(4, ill="crash")

    told = "\n".join(found.value.__notes__)
    assert "state.crash" in told
    assert told.index("state = Model()") < told.index("state.crash")


def test_laboratory_tells_what_it_found_and_how_to_see_it_again(broker: Broker, tmp_path: Path) -> None:
    report = Report(seed=7, minutes=0)
    drivers: Any = None
    laboratory = Laboratory(broker, drivers, report, tmp_path)

    def lose() -> None:
        raise AssertionError("the ledger does not hold:\n  1 lost: 5")

    laboratory._try("walk 8", lose)

    assert report.findings == ["walk 8: the ledger does not hold:\n  1 lost: 5"]
    assert "0 duplicates, 1 losses, 1 findings." in report.markdown()
    assert "To repeat it: `make faults SEED=7 MINUTES=0`" in report.markdown()
