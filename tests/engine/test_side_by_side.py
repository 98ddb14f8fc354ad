"""Pipelines and sources beside each other in one program: nothing of one gets into the other."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.sources.generate.clickstream import payloads
from support.ledger import assert_each_once, table_ids

pytestmark = pytest.mark.usefixtures("spark")


def test_pipelines_in_threads_of_one_program_and_sources_alike_but_for_case_do_not_mix(
    tmp_path: Path,
) -> None:
    files = [tmp_path / "east.yaml", tmp_path / "west.yaml"]
    for seed, file in enumerate(files):
        name = file.stem
        file.write_text(
            f"""\
name: {name}
sources:
  clicks: {{type: generate, rows: 900, seed: {seed}}}
  Clicks: {{type: generate, rows: 500, seed: {seed}}}
tables:
  lower: {{path: {name}_lower, from: clicks}}
  upper: {{path: {name}_upper, from: Clicks}}
flush: {{rows: 300}}
"""
        )

    with ThreadPoolExecutor() as pool:
        done = [pool.submit(Pipeline.from_file(file).run, once=True) for file in files]

    assert [one.exception() for one in done] == [None, None]
    for seed, name in enumerate(("east", "west")):
        made = [json.loads(payload)["user_id"] for payload in payloads(seed, np.arange(900))]
        for table, count in (("lower", 900), ("upper", 500)):
            rows = DeltaTable(tmp_path / f"{name}_{table}").to_pyarrow_table().sort_by("event_id")
            assert_each_once(range(count), rows.column("event_id").to_pylist())
            assert rows.column("user_id").to_pylist() == made[:count]


def test_source_may_have_the_name_of_a_file_in_the_state_folder(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  lock: {type: generate, rows: 10}
tables: {events: {path: events, from: lock}}
"""
    )

    Pipeline.from_file(file).run(once=True)

    assert len(table_ids(tmp_path / "events")) == 10
