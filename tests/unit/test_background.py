from __future__ import annotations

from typing import Any

import pytest

from lakefeed import Pipeline
from lakefeed.pipeline.table import Table
from lakefeed.sources.generate.source import GenerateSource


def test_run_hands_over_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        "lakefeed.background.run",
        lambda pipeline, once, master, **_: calls.append((pipeline, once, master)),
    )
    pipeline = Pipeline(
        name="shop",
        sources={"clicks": GenerateSource(rows=1)},
        tables={"clicks": Table(path="/lake/clicks", from_=("clicks",))},
    )

    pipeline.run(once=True, master="local[1]")

    assert calls == [(pipeline, True, "local[1]")]
