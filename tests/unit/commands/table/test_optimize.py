"""`lakefeed table optimize`: once, and nothing the second time."""

from __future__ import annotations

from pathlib import Path

from support.command_line import Lakefeed
from support.delta_tables import content, small_files


def test_optimize_twice_leaves_one_file_a_partition_and_nothing_to_do(run: Lakefeed, tmp_path: Path) -> None:
    path = small_files(tmp_path)
    before = content(path)

    _, done, _ = run("optimize", path, "--yes")
    _, again, _ = run("optimize", path, "--yes")

    assert "6 files" in done and "After: 2 files" in done and "6 rows" in done
    assert again.endswith("Nothing to do: no partition has two small files.\n")
    assert content(path) == before
