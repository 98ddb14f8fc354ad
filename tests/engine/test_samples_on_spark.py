"""Samples that run in this process and samples that run on Spark end in the same tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakefeed.testing import Landed, Sample, run_samples

PIPELINE = """
    name: shop
    sources:
      clicks: {type: kafka, brokers: "localhost:9", topics: [clicks], format: json}
    tables:
      all:
        path: a
        from: clicks
        metadata: true
        partition_by: [kind]
        schema: {id: long not null, kind: int}
"""


def test_spark_and_this_process_land_the_same_rows_and_dead_letters(
    pipeline_file: Callable[[str], Path], tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [
        *(
            Sample(json={"id": number, "kind": number % 2}, partition=number % 3, key="k")
            for number in range(20)
        ),
        Sample(text="{"),
        Sample(hex="ff"),
        Sample(),
    ]
    batches = []
    register = type(spark.dataSource).register  # type: ignore[attr-defined]
    monkeypatch.setattr(
        type(spark.dataSource),  # type: ignore[attr-defined]
        "register",
        lambda self, kind: (batches.append(kind), register(self, kind))[1],
    )

    file = pipeline_file(PIPELINE)
    here = run_samples(file, {"clicks": events}, tmp_path / "here")
    assert batches == []
    there = run_samples(file, {"clicks": events}, tmp_path / "there", spark=True)

    assert batches
    assert len(here.rows("all")) == 20
    assert held(here) == held(there)


def held(landed: Landed) -> tuple[list[Any], list[Any]]:
    letters = [{**letter, "dead_at": None} for letter in landed.dead_letters("all")]
    return sorted(landed.rows("all"), key=str), sorted(letters, key=str)
