"""The medallion template as a user runs it: one command fills bronze, silver and gold."""

from __future__ import annotations

import re
from pathlib import Path

from deltalake import DeltaTable

from support.lakefeed import run


def test_medallion_passes_its_tests_and_runs_with_one_command(tmp_path: Path) -> None:
    code, _, said = run("init", "shop", "--template", "medallion", cwd=tmp_path)
    assert code == 0, said
    file = str(tmp_path / "shop" / "shop.yaml")

    code, out, said = run("test", file)
    assert code == 0, (out, said)
    assert "starting Spark: a query computes gold" in said
    assert re.search(r"^4 passed, 0 failed$", out, re.MULTILINE)

    code, _, said = run("run", file, "--once", "--set", "sources.shop.rows=5000")
    assert code == 0, said
    rows = {
        name: DeltaTable(tmp_path / "shop" / "lake" / name).to_pyarrow_table()
        for name in ("bronze", "silver", "gold")
    }
    bronze = [row for row in rows["bronze"].to_pylist() if row["event_type"] != "view"]
    bought = [row for row in bronze if row["event_type"] == "purchase"]
    assert rows["bronze"].num_rows == 4995
    assert sorted(rows["silver"]["event_id"].to_pylist()) == sorted(row["event_id"] for row in bronze)
    assert sum(rows["gold"]["purchases"].to_pylist()) == len(bought)
