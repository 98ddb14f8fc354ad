"""A rewind between two runs with Spark: the second run reads again what the first had read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.reports.verify import verify
from lakefeed.reprocess.rewind import rewind
from support.ledger import assert_each_once, dead_letters, table_ids

pytestmark = pytest.mark.usefixtures("spark")


def test_run_rewind_run_leaves_every_event_once_and_a_sound_proof(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  clicks: {type: generate, rows: 3000, partitions: 3, bad_ratio: 0.02}
tables:
  events: {path: events, from: clicks, metadata: true}
  copy: {path: copy, from: clicks, partition_by: [event_type]}
flush: {rows: 500}
"""
    )
    pipeline = Pipeline.from_file(file)
    pipeline.run(once=True)
    first = verify(pipeline, deep=True)

    report = rewind(pipeline, "events", to_version=3)
    pipeline.run(once=True)

    letters = dead_letters(tmp_path / "shop_dead_letters")
    assert first.sound, first
    assert (report.rows_now, report.dead_letters_kept > 0) == (2940, True)
    for name in ("events", "copy"):
        dead = [one["offset"] * 3 + one["partition"] for one in letters if one["table"] == name]
        assert_each_once(range(3000), table_ids(tmp_path / name), dead)
    assert verify(pipeline, deep=True).sound
