"""`engine: spark` and delta-rs leave the same content behind, and the stream goes on after either."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from lakefeed.tables.table import commit_info_of
from support.delta_tables import rows
from support.ledger import assert_versions_contiguous
from support.upkeep_engines import look_after


def test_both_engines_give_the_same_content(tmp_path: Path) -> None:
    steps = look_after(tmp_path)

    tables = {engine: tmp_path / engine / "events" for engine in ("spark", "delta-rs")}
    kinds = {
        engine: {
            told["kind"]
            for info in DeltaTable(path).history()
            if (told := commit_info_of(info)).get("by") == "upkeep"
        }
        for engine, path in tables.items()
    }
    assert len(rows(tables["spark"])) == 40 + 40
    assert rows(tables["spark"]) == rows(tables["delta-rs"])
    assert {"compact", "cluster", "delete"} <= kinds["spark"]
    assert kinds["delta-rs"] == {"compact", "cluster", "delete", "vacuum"}
    counted = {
        engine: [(step["operation"], step["files_before"], step["files_after"]) for step in told]
        for engine, told in steps.items()
    }
    assert counted["spark"] == counted["delta-rs"]
    assert {operation for operation, _, _ in counted["spark"]} == {"compact", "cluster", "delete", "vacuum"}
    for path in tables.values():
        assert_versions_contiguous(path)
        assert DeltaTable(path).transaction_version("shop/clicks/0") == 39
