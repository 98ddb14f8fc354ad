"""Tables that feed each other, killed wherever a batch may be: they agree to the row. Without a JVM."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from support.faultpoints import POINTS
from support.forks import run_and_kill
from support.ledger import dead_letters, table_ids


def write(folder: Path, rows: int) -> Path:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{events: {{type: generate, rows: {rows}, partitions: 2, bad_ratio: 0.02}}}}
tables:
  bronze: {{path: bronze, from: events}}
  silver: {{path: silver, from: bronze, schema: {{event_id: long, brand: int}}, evolve: ignore}}
  copied: {{path: copied, from: silver}}
  late: {{path: late, from: bronze, schema: {{event_id: long}}, evolve: ignore}}
flush: {{rows: 50}}
sync: false
"""
    )
    return file


def check(folder: Path, rows: int) -> None:
    """Each event is once in bronze or a dead letter, and each row of a table once in those that it feeds."""
    letters = dead_letters(folder / "shop_dead_letters")
    refused = [one["offset"] for one in letters if one["table"] == "silver"]
    bronze = sorted(table_ids(folder / "bronze"))
    silver = sorted(table_ids(folder / "silver"))

    assert len(bronze) == len(set(bronze)) == rows - rows // 50
    assert sorted(table_ids(folder / "late")) == bronze
    assert len(refused) == len(set(refused)) and len(silver) == len(set(silver))
    assert len(silver) + len(refused) == len(bronze) and refused
    assert sorted(table_ids(folder / "copied")) == silver
    assert verify(Pipeline.from_file(folder / "shop.yaml")).sound


@pytest.mark.parametrize("seed", range(2))
def test_a_chain_that_is_killed_again_and_again_agrees_to_the_row(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    killed = 0

    for rows in range(100, 800, 100):
        point = f"{chance.choice(POINTS)}:{chance.randint(1, 9)}"
        killed += run_and_kill(write(tmp_path, rows), point) == -signal.SIGKILL
        if chance.random() < 0.3 and (tmp_path / "bronze" / "_delta_log").exists():
            DeltaTable(tmp_path / "bronze").optimize.compact()
    run_inline(Pipeline.from_file(write(tmp_path, 800)))

    assert killed >= 4
    check(tmp_path, 800)
