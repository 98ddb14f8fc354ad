"""The model: a pipeline of which hypothesis chooses what befalls it next, and the ledger after each step."""

from __future__ import annotations

import sys
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from faults.meddling import MEDDLING
from faults.world import TABLES, World
from lakefeed.engine.faultpoints import END_POINT
from support.drivers import Drivers
from support.faultpoints import POINTS

MOST_PARTITIONS = 4
counts = st.integers(1, 300)
tables = st.sampled_from([*TABLES, "shop_dead_letters"])


class Nowhere:
    """A world in which nothing happens."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **named: None


class Model(RuleBasedStateMachine):
    """Rules over a world. `begin` makes a new one, `drivers` are the processes that may be killed in it."""

    begin: Callable[[], World | Nowhere]
    drivers: Drivers

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).begin()
        self.partitions = 1

    @initialize(count=counts)
    def begin_with_events(self, count: int) -> None:
        """Some walks choose nothing but upkeep, which needs a table."""
        self.world.produce(count)
        self.world.run()

    @rule(count=counts)
    def produce(self, count: int) -> None:
        self.world.produce(count)

    @rule()
    def run(self) -> None:
        self.world.run()

    @rule(count=counts, point=st.sampled_from(POINTS), nth=st.integers(1, 4))
    def crash(self, count: int, point: str, nth: int) -> None:
        self.world.produce(count)
        self.world.crash(self.drivers, point, nth)

    @rule(count=counts, point=st.sampled_from(POINTS), nth=st.integers(1, 4))
    def crash_while_the_schema_changes(self, count: int, point: str, nth: int) -> None:
        self.world.widen_events(count)
        self.world.crash(self.drivers, point, nth)

    @rule(count=counts, point=st.sampled_from([*POINTS, END_POINT]), nth=st.integers(1, 3))
    def replace(self, count: int, point: str, nth: int) -> None:
        self.world.replace(self.drivers, count, point, nth)

    @rule(count=counts)
    def run_twice_at_once(self, count: int) -> None:
        self.world.produce(count)
        self.world.run_twice_at_once(self.drivers)

    @rule(count=counts)
    def widen_events(self, count: int) -> None:
        self.world.widen_events(count)

    @rule()
    def lose_checkpoint(self) -> None:
        self.world.lose_checkpoint()

    @rule()
    def spoil_checkpoint(self) -> None:
        self.world.spoil_checkpoint()

    @precondition(lambda self: self.partitions < MOST_PARTITIONS)
    @rule()
    def add_partition(self) -> None:
        self.partitions += 1
        self.world.add_partition()

    @rule(table=st.sampled_from(TABLES))
    def alter_from_outside(self, table: str) -> None:
        self.world.alter_from_outside(table)

    @rule(kind=st.sampled_from(sorted(MEDDLING)), table=st.sampled_from(TABLES))
    def meddle(self, kind: str, table: str) -> None:
        self.world.meddle(self.drivers, kind, table)

    @rule()
    def expire(self) -> None:
        self.world.expire()

    @rule(count=counts, awake=st.booleans())
    def truncate(self, count: int, awake: bool) -> None:
        self.world.truncate(self.drivers, count, awake=awake)

    @rule(count=counts, awake=st.booleans())
    def recreate_topic(self, count: int, awake: bool) -> None:
        self.world.recreate_topic(self.drivers, count, awake=awake)

    @rule(count=st.integers(1, 8))
    def produce_large(self, count: int) -> None:
        self.world.produce_large(count)

    @rule(table=tables)
    def compact(self, table: str) -> None:
        self.world.compact(table)

    @rule(table=tables)
    def vacuum(self, table: str) -> None:
        self.world.vacuum(table)

    @rule(table=tables)
    def checkpoint_log(self, table: str) -> None:
        self.world.checkpoint_log(table)

    @invariant()
    def ledger_holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None:
            # The world stays as it is, for whoever looks at what happened.
            return
        self.world.run()
        self.world.check()
        self.world.close()


def walk(begin: Callable[[], World], drivers: Drivers, number: int, steps: int) -> None:
    """Run a walk of so many steps, the same one for the same number; a failure tells the steps to it.

    Nothing is shrunk: each attempt would take as long as the walk. Hypothesis begins with the simplest walk,
    whatever the seed, which is led through nowhere; the second one is random.
    """
    worlds: list[World | Nowhere] = []

    def begin_second() -> World | Nowhere:
        worlds.append(begin() if worlds else Nowhere())
        return worlds[-1]

    model = type("Model", (Model,), {"begin": staticmethod(begin_second), "drivers": drivers})
    chosen = settings(
        max_examples=2,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    run_state_machine_as_test(seed(number)(model), settings=chosen)
