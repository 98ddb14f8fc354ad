"""The whole way with executors that are processes of their own, as on a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pyspark

from support.lakefeed import run
from support.ledger import assert_each_once, assert_versions_contiguous, dead_letters, table_ids

ROWS = 300_000
PARTITIONS = 3


def test_local_cluster_lands_every_row_once_and_leaves_nothing_in_pyspark(tmp_path: Path) -> None:
    # A space, as folders of users have them: executors and Java options must bear it.
    folder = tmp_path / "my lake"
    folder.mkdir()
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: generate, rows: {ROWS}, partitions: {PARTITIONS}, bad_ratio: 0.001}}
tables:
  events: {{path: events, from: clicks, partition_by: [event_type], metadata: true}}
flush: {{rows: 150000}}
"""
    )

    code, _, said = run("run", str(file), "--once", "--master", "local-cluster[2,1,1024]", timeout=240)

    assert code == 0, said
    letters = dead_letters(folder / "shop_dead_letters")
    dead = [letter["offset"] * PARTITIONS + letter["partition"] for letter in letters]
    assert len(dead) == ROWS // 1000
    assert_each_once(range(ROWS), table_ids(folder / "events"), dead)
    assert_versions_contiguous(folder / "events")
    assert not (Path(pyspark.__file__).parent / "work").exists()
    code, out, said = run("status", str(file), "--json")
    assert code == 0, said
    (table,) = json.loads(out)["tables"]
    assert table["rows"] == ROWS - len(dead)
    assert table["lag"] == 0
