"""`lakefeed table vacuum`: what it would delete, and what it leaves."""

from __future__ import annotations

from pathlib import Path

from support.command_line import Lakefeed
from support.delta_tables import make_old, small_files


def test_vacuum_shows_what_it_would_delete_and_leave(run: Lakefeed, tmp_path: Path) -> None:
    path = small_files(tmp_path)
    (path / "orphan.parquet").write_bytes(b"xyz")
    (path / "README").write_text("mine")
    make_old(path, 30)

    _, planned, _ = run("vacuum", path, "--retain", "10d")
    code, _, said = run("vacuum", path, "--retain", "1h")

    assert "1 file, 3 bytes unneeded for longer than 10d\n  orphan.parquet (3 bytes)\n" in planned
    assert "not deleted: README, which do not belong to the table" in planned
    assert code == 1 and "a retention of 1h is too short" in said and "--allow-short-retention" in said
    assert run("vacuum", path, "--retain", "1h", "--allow-short-retention")[0] == 0
