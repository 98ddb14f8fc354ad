"""A pipeline file whose events were dead letters once, and what commands that are killed leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.ledger import assert_each_once, dead_letters, table_ids


def write(folder: Path, time: str = "timestamp", rows: int = 100) -> Path:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: generate, rows: {rows}, partitions: 2, bad_ratio: 0.1}}
tables:
  events: {{path: events, from: clicks, schema: {{event_id: long, event_time: {time}}}}}
"""
    )
    return file


def check_ledger(folder: Path, rows: int = 100) -> None:
    """Every event is there once, as a row or as a dead letter."""
    dead = [one["offset"] * 2 + one["partition"] for one in dead_letters(folder / "shop_dead_letters")]
    assert_each_once(range(rows), table_ids(folder / "events"), dead)


def killed(point: str, *arguments: object) -> None:
    """Run `lakefeed` in a process of its own that kills itself at this point."""
    done = subprocess.run(
        [sys.executable, "-m", "lakefeed", *map(str, arguments)],
        env={**os.environ, "LAKEFEED_KILL_AT": point},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
