"""A pipeline is killed while it looks after its table, started again, and the ledger is checked."""

from __future__ import annotations

from pathlib import Path

from lakefeed import Pipeline
from support.drivers import Drivers
from support.ledger import assert_each_once, table_ids


def test_stream_that_is_killed_by_its_upkeep_loses_and_repeats_nothing(
    drivers: Drivers, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {clicks: {type: generate, rows: 200000, rate: 3000}}
tables:
  events: {path: events, from: clicks, schema: {event_id: long not null}}
upkeep: {compact: {every: 300ms, min_files: 3}, max_share: 1}
flush: {interval: 20ms}
"""
    )

    killed = drivers.start(file, once=False, env={"LAKEFEED_KILL_AT": "compact_done:2"}).wait()
    # At the first rate the rest would end wherever the clock is when the second run looks.
    rest = ["sources.clicks.rows=5000", "sources.clicks.rate=1000000000"]
    Pipeline.from_file(file, rest).run(once=True)

    assert killed.code == -9, killed.said
    assert "events: compact: " in killed.said
    rows = table_ids(tmp_path / "events")
    assert_each_once(range(len(rows)), rows)
    assert len(rows) >= 5000
