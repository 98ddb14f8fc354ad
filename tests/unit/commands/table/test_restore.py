"""`lakefeed table restore` of a table that a pipeline feeds."""

from __future__ import annotations

from pathlib import Path

from support.command_line import Lakefeed
from support.delta_tables import ids, small_files


def test_restore_of_a_pipelines_table_needs_to_be_told_to_keep_positions(
    run: Lakefeed, tmp_path: Path
) -> None:
    path = small_files(tmp_path, positions="shop/clicks/0")

    code, _, said = run("restore", path, "--to-version", "2", "--yes")
    kept_code, _, _ = run("restore", path, "--to-version", "2", "--keep-positions", "--yes")

    assert code == 1 and "lakefeed rewind FILE --table NAME --to-version 2" in said
    assert kept_code == 0 and ids(path) == [0, 1, 2]
