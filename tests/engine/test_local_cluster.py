"""The whole way with executors that are processes of their own, as on a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pyspark
from deltalake import DeltaTable

import support
from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from support.lakefeed import Process, run
from support.ledger import assert_each_once, assert_versions_contiguous, dead_letters, table_ids

ROWS = 60_000
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
flush: {{rows: 30000}}
"""
    )

    code, _, said = run("run", str(file), "--once", "--master", "local-cluster[2,1,1024]", timeout=240)

    assert code == 0, said
    assert "2 cores on 2 executors" in said
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


def test_an_upsert_counts_once_when_an_executor_dies_while_it_rewrites(tmp_path: Path) -> None:
    expected = write_upsert(tmp_path / "here", "local[1]")
    run_inline(Pipeline.from_file(expected))
    file, mark = write_upsert(tmp_path / "cluster", "local-cluster[2,1,1024]"), tmp_path / "killed"
    env = {"PYTHONPATH": str(Path(support.__file__).parent.parent)}

    arguments = (str(mark), "run", str(file), "--once")
    with Process(arguments, None, env, module="support.killed_executor") as process:
        code = process.wait(240)
        said = process.stderr

    assert code == 0, said
    assert mark.read_text().isdecimal()
    assert upserted(file) == upserted(expected)
    pipeline = Pipeline.from_file(file)
    assert verify(pipeline, deep=True).sound
    named = {Path(one).name for one in DeltaTable(file.parent / "newest").file_uris()}
    assert named <= {one.name for one in (file.parent / "newest").glob("*.parquet")}


def write_upsert(folder: Path, master: str) -> Path:
    folder.mkdir()
    (folder / "shop.yaml").write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 6000, partitions: 2}}}}
tables:
  newest:
    path: newest
    from: clicks
    mode: upsert
    keys: product_id
    sequence_by: event_id
    max_rows_per_file: 300
    schema: {{event_id: long, product_id: long}}
    evolve: {{new_column: ignore}}
flush: {{rows: 3000}}
upkeep: off
spark: {{master: "{master}"}}
"""
    )
    return folder / "shop.yaml"


def upserted(file: Path) -> list[tuple[int, int]]:
    rows = DeltaTable(file.parent / "newest").to_pyarrow_table().to_pylist()
    return sorted((row["product_id"], row["event_id"]) for row in rows)
