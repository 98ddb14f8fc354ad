"""A process that shapes rows with SQL is killed: each event is a row, a letter or left out, and that once.

Without Spark: what is killed is the engine's own flow, tasks and committer in a process of their own.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine import inline
from lakefeed.reports.verify import verify
from lakefeed.tables.table import commit_info_of
from support import forks
from support.analyzing import analyze_by_hand

EVENTS = 1_200
FILE = """
name: shop
flush: {{rows: 200}}
sources:
  clicks: {{type: generate, rows: {rows}, partitions: 2, bad_ratio: 0.02}}
tables:
  silver:
    path: silver
    from: clicks
    metadata: [_partition, _offset]
    select: ['*', user_id AS buyer]
    where: product_id > 1000006
    expect:
      cheap: {{that: price < 900, otherwise: drop}}
      paid: price > 40
"""


def run(file: Path, kill_at: str = "") -> int:
    log = file.with_suffix(".log")
    process = forks.start(
        forks.call, "faults.test_kill_shaping:read", file, env={"LAKEFEED_KILL_AT": kill_at}, log=log
    )
    code = forks.ended(process)
    assert code in (0, -signal.SIGKILL), log.read_text()
    return code


def read(file: Path) -> None:
    inline.analyze_here = analyze_by_hand
    inline.run_inline(Pipeline.from_file(file))


def check(folder: Path, expected: int) -> None:
    """Every event was read once: as a row, as a dead letter, or as one of those that were left out."""
    silver = DeltaTable(folder / "silver")
    rows = silver.to_pyarrow_table(columns=["_partition", "_offset"]).to_pylist()
    letters = DeltaTable(folder / "shop_dead_letters").to_pyarrow_table().to_pylist()
    places = Counter((one["_partition"], one["_offset"]) for one in rows)
    places += Counter((one["partition"], one["offset"]) for one in letters)
    infos = [commit_info_of(one) for one in silver.history()]
    filtered = sum(sum(info.get("filtered", {}).values()) for info in infos)

    assert max(places.values()) == 1
    assert len(places) + filtered == expected
    assert {one["stage"] for one in letters} == {"decode", "expect"}
    assert {one["code"] for one in letters if one["stage"] == "expect"} == {"paid"}
    assert verify(Pipeline.from_file(folder / "shop.yaml")).sound
    counted: Counter[str] = Counter()
    for info in infos:
        counted.update(info.get("expectations", {}).get("paid", {}))
    assert counted["dead_letter"] == sum(one["stage"] == "expect" for one in letters)


@pytest.mark.parametrize(
    "point", ["files_written", "letters_committed", "table_committed", "batch_committed"]
)
def test_restart_after_a_kill_counts_each_event_once(point: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE.format(rows=EVENTS))

    killed = run(file, f"{point}:2")
    run(file)

    assert killed == -signal.SIGKILL
    check(tmp_path, EVENTS)


def test_a_new_column_survives_a_kill_between_its_two_commits(tmp_path: Path) -> None:
    """What is kept of the events is committed first; the column that it makes is added by the next start."""
    file = tmp_path / "shop.yaml"
    file.write_text(FILE.format(rows=EVENTS))
    run(file)
    silver = DeltaTable(tmp_path / "silver")
    kept = json.loads(silver.metadata().configuration["lakefeed.events"])
    kept["fields"].append({"name": "coupon", "type": "string", "nullable": True, "metadata": {}})
    silver.alter.set_table_properties({"lakefeed.events": json.dumps(kept)}, raise_if_not_exists=False)

    file.write_text(FILE.format(rows=EVENTS + 100))
    run(file)

    assert "coupon" in DeltaTable(tmp_path / "silver").schema().to_arrow().names
    check(tmp_path, EVENTS + 100)
