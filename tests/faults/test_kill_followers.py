"""An upsert table and tables that follow its changes, killed wherever a batch may be. Without a JVM."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from faults.test_kill_chain import run_and_kill
from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from lakefeed.tables.data_files import data_files, read_rows
from support.delta_tables import open_any
from support.faultpoints import POINTS

COLUMNS = ("product_id", "event_id", "price")


def write(folder: Path, rows: int, updates: str) -> Path:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{events: {{type: generate, rows: {rows}, partitions: 2}}}}
tables:
  bronze: {{path: bronze, from: events}}
  silver:
    {{path: silver, from: bronze, mode: upsert, keys: product_id, sequence_by: event_id, updates: {updates}}}
  copy: {{path: copy, from: silver, mode: upsert}}
  past: {{path: past, from: silver, mode: history}}
  audit: {{path: audit, from: silver}}
flush: {{rows: 60}}
sync: false
"""
    )
    return file


def rows_of(folder: Path, name: str, *columns: str) -> list[tuple[Any, ...]]:
    table = open_any(folder / name)
    rows = [row for batch in read_rows(table, data_files(table)) for row in batch.to_pylist()]
    return sorted((tuple(row[column] for column in columns) for row in rows), key=repr)


def replayed(folder: Path) -> list[tuple[Any, ...]]:
    """What all changes of the audit trail make of nothing."""
    found: dict[Any, tuple[Any, ...]] = {}
    leaving = ("delete", "update_preimage")
    trail = DeltaTable(folder / "audit").to_pyarrow_table().to_pylist()
    for row in sorted(trail, key=lambda row: (row["_commit_version"], row["_change_type"] not in leaving)):
        if row["_change_type"] in leaving:
            del found[row["product_id"]]
        else:
            found[row["product_id"]] = tuple(row[column] for column in COLUMNS)
    return sorted(found.values(), key=repr)


@pytest.mark.parametrize(("seed", "updates"), [(0, "copy_on_write"), (1, "merge_on_read")])
def test_followers_of_a_table_that_is_killed_again_and_again_agree_with_it(
    seed: int, updates: str, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    killed = 0

    for rows in range(200, 1400, 200):
        point = f"{chance.choice(POINTS)}:{chance.randint(1, 9)}"
        killed += run_and_kill(write(tmp_path, rows, updates), point) == -signal.SIGKILL
        if chance.random() < 0.5 and updates == "copy_on_write" and (tmp_path / "silver").exists():
            DeltaTable(tmp_path / "silver").delete(f"event_id % 5 = {chance.randint(0, 4)}")
    pipeline = Pipeline.from_file(write(tmp_path, 1400, updates))
    run_inline(pipeline)

    silver = rows_of(tmp_path, "silver", *COLUMNS)
    now = [row[:3] for row in rows_of(tmp_path, "past", *COLUMNS, "valid_to") if row[3] is None]
    assert killed >= 3 and len(silver) > 10
    assert rows_of(tmp_path, "copy", *COLUMNS) == silver == now == replayed(tmp_path)
    found = [(table.name, one.kind) for table in verify(pipeline).tables for one in table.findings]
    # Rows that somebody else deletes are told, and followed.
    assert set(found) <= {("silver", "foreign")}
