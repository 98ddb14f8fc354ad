"""`lakefeed table properties`: set, taken away, and refused where they would harm."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from support.command_line import Lakefeed
from support.delta_tables import ids, small_files, write_table


def test_properties_are_set_and_taken_away(run: Lakefeed, tmp_path: Path) -> None:
    path = small_files(tmp_path, properties={"delta.logRetentionDuration": "interval 40 days"})

    _, planned, _ = run("properties", path, "--set", "delta.checkpointInterval=5", "--set", "mine=x")
    run("properties", path, "--set", "delta.checkpointInterval=5", "--set", "mine=x", "--yes")
    _, away, _ = run("properties", path, "--unset", "mine", "--unset", "delta.logRetentionDuration", "--yes")
    _, shown, _ = run("properties", path)
    write_deltalake(path, pa.table({"id": [9], "day": ["x"]}), mode="append")

    assert "delta.checkpointInterval: not set -> 5" in planned
    assert "mine: x -> not set" in away
    assert shown == "delta.checkpointInterval = 5\n"
    assert ids(path)[-1] == 9
    assert DeltaTable(path).metadata().partition_columns == ["day"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("delta.logRetentionDuration=banana", "expected an interval such as 'interval 7 days', got 'banana'"),
        ("delta.appendOnly=yes", "expected true or false, got 'yes'"),
        ("delta.chekpointInterval=5", "did you mean 'delta.checkpointInterval'?"),
        ("delta.columnMapping.mode=name", "refused: column mapping is not readable by every engine"),
        ("delta.checkpointPolicy=v2", "not a property that can be set here"),
        ("novalue", "--set expects KEY=VALUE, got 'novalue'."),
    ],
)
def test_property_that_would_harm_the_table_is_refused(
    given: str, told: str, run: Lakefeed, tmp_path: Path
) -> None:
    write_table(tmp_path, [{"id": [1]}])

    code, _, said = run("properties", tmp_path, "--set", given, "--yes")

    assert code == 2 and told in said
    assert DeltaTable(tmp_path).version() == 0
