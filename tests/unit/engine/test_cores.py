"""How many tasks a batch is cut into, by what Spark says of its executors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakefeed.engine.cores import Cores, session_cores


def session(slots: int, executors: int, **conf: str) -> Any:
    """A session whose scheduler has so many slots; `local` has none of the executors."""
    scala = SimpleNamespace(
        isLocal=lambda: executors == 0,
        maxNumConcurrentTasks=lambda profile: slots,
        resourceProfileManager=lambda: SimpleNamespace(defaultResourceProfile=lambda: None),
        getExecutorMemoryStatus=lambda: SimpleNamespace(size=lambda: executors + 1),
    )
    settings = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    return SimpleNamespace(
        sparkContext=SimpleNamespace(
            _jsc=SimpleNamespace(sc=lambda: scala), _conf=SimpleNamespace(get=settings.get)
        )
    )


DYNAMIC = {"dynamicAllocation_enabled": "true"}


@pytest.mark.parametrize(
    ("spark", "expected"),
    [
        (session(2, 0), Cores(2, 0, 2)),
        (session(8, 2), Cores(8, 2, 8)),
        (session(8, 2, **DYNAMIC), Cores(8, 2, 16)),
        (session(8, 2, **DYNAMIC, dynamicAllocation_maxExecutors="3"), Cores(8, 2, 12)),
        (session(8, 2, **DYNAMIC, dynamicAllocation_maxExecutors="2"), Cores(8, 2, 8)),
    ],
)
def test_tasks_of_a_batch_follow_the_executors_that_are_there(spark: Any, expected: Cores) -> None:
    assert session_cores(spark) == expected


def test_a_second_flow_leaves_one_core_to_the_first() -> None:
    assert Cores(8, 2, 8).without_one() == Cores(8, 2, 7)
    assert Cores(1, 0, 1).without_one() == Cores(1, 0, 1)
