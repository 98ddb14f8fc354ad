"""`lakefeed table drop`: the table, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from support.command_line import Lakefeed
from support.delta_tables import ids, small_files


def test_drop_deletes_the_table_and_nothing_else(run: Lakefeed, tmp_path: Path) -> None:
    path = small_files(tmp_path / "t", positions="shop/clicks/0")
    marks = [Transaction("shop/clicks/#topic", 7), Transaction("shop/#replay", 1)]
    write_deltalake(
        path,
        DeltaTable(path).to_pyarrow_table(),
        mode="append",
        commit_properties=CommitProperties(app_transactions=marks),
    )
    write_deltalake(path / "nested", pa.table({"id": [1]}))
    (path / "README").write_text("mine")

    _, planned, _ = run("drop", path)
    code, _, _ = run("drop", path, "--yes")

    assert (
        "The positions of 1 source partition are deleted too: a pipeline that still uses this path would"
        in planned
    )
    assert "Not deleted: nested, README" in planned
    assert code == 0
    assert sorted(file.name for file in path.iterdir()) == ["README", "nested"]
    assert ids(path / "nested") == [1]


def test_drop_of_a_table_alone_in_its_directory_leaves_no_directory(run: Lakefeed, tmp_path: Path) -> None:
    path = small_files(tmp_path / "t")

    run("drop", path, "--yes")

    assert not path.exists()
