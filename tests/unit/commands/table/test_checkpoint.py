"""`lakefeed table checkpoint`."""

from __future__ import annotations

from pathlib import Path

from support.command_line import Lakefeed
from support.delta_tables import small_files


def test_checkpoint_is_written_once(run: Lakefeed, tmp_path: Path) -> None:
    path = small_files(tmp_path)

    _, done, _ = run("checkpoint", path, "--yes")
    _, again, _ = run("checkpoint", path, "--yes")

    assert "last checkpoint never, 6 entries since" in done and "Done: a checkpoint of version 5." in done
    assert "Nothing to do" in again
    assert list((path / "_delta_log").glob("*.checkpoint.parquet"))
