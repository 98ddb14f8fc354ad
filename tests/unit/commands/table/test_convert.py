"""`lakefeed table convert`: Parquet files become a table where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from support.command_line import Lakefeed
from support.delta_tables import commit_info


def test_convert_makes_a_table_of_parquet_files_where_they_lie(run: Lakefeed, tmp_path: Path) -> None:
    for day in ("2026-11-01", "2026-11-02"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"id": [int(day[-1])]}), tmp_path / f"day={day}" / "a.parquet")
    (tmp_path / "_SUCCESS").touch()

    _, planned, _ = run("convert", tmp_path, "--partition-by", "day date")
    code, done, said = run("convert", tmp_path, "--partition-by", "day date", "--reason", "adopt", "--yes")
    again, _, already = run("convert", tmp_path, "--yes")

    assert "2 rows would become a Delta table\n  id: long\n  day: date\npartitioned by day\n" in planned
    assert (code, said) == (0, "") and done.startswith(planned.rpartition("Nothing")[0])
    rows = DeltaTable(tmp_path).to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], str(row["day"])) for row in rows] == [(1, "2026-11-01"), (2, "2026-11-02")]
    assert commit_info(tmp_path)["reason"] == "adopt"
    assert again == 2 and "is a Delta table already" in already


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {"a.parquet": {"id": [1]}, "b.parquet": {"id": ["x"]}},
            "column id is long in a.parquet and string in b",
        ),
        (
            {"a.parquet": {"id": [1]}, "_tmp/b.parquet": {"id": [1]}},
            "_tmp/b.parquet is inside; move it somewhere else",
        ),
        (
            {"a=1/x.parquet": {"id": [1]}, "b=1/x.parquet": {"id": [1]}},
            "directories of a and others in those of b",
        ),
        ({}, "there are no Parquet files."),
    ],
)
def test_what_cannot_become_one_table_is_refused(
    files: dict[str, dict[str, Any]], told: str, run: Lakefeed, tmp_path: Path
) -> None:
    for name, rows in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(rows), tmp_path / name)

    code, _, said = run("convert", tmp_path, "--yes")

    assert code in (1, 2) and told in said
    assert not (tmp_path / "_delta_log").exists()
