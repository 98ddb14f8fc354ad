from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from lakefeed.engine.batch.manifest import Manifest
from lakefeed.engine.spark import worker
from lakefeed.engine.spark.source import Task, data_source
from lakefeed.engine.task import task
from lakefeed.events import OffsetRange
from lakefeed.files.names import Serial


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if this process had run no task yet."""
    monkeypatch.setattr(worker, "_tasks", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_a_worker_has_loaded_is_not_searched_for_garbage_after_every_task(
    new_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan: Any = "the plan"
    source: Any = data_source("clicks", "no address", {}, plan)
    reader = source(options={}).streamReader(None)
    split = Task((OffsetRange("clicks-0", 0, 10),), Serial(0, 0))
    monkeypatch.setattr(task, "run_task", lambda *_, **more: Manifest())

    list(reader.read(split))
    after_one = gc.get_freeze_count()
    list(reader.read(split))
    after_two = gc.get_freeze_count()
    list(reader.read(split))

    assert after_one == 0
    assert after_two > 10_000
    assert abs(gc.get_freeze_count() - after_two) < 1_000
