"""`lakefeed table replace`: rows, the type of a column, or the layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from support.command_line import Lakefeed
from support.delta_tables import ids, small_files, write_table


def test_replace_column_takes_names_with_blanks_and_no_null_where_none_may_be(
    run: Lakefeed, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    columns = pa.schema([pa.field("the total", pa.int64()), pa.field("code", pa.string(), nullable=False)])
    write_deltalake(path, pa.table({"the total": [1, 2], "code": ["7", "x"]}, schema=columns))

    code, _, said = run("replace", path, "--column", "the total decimal(10, 2)", "--yes")
    refused, _, why = run("replace", path, "--column", "code long", "--or-null", "--yes")

    assert (code, said) == (0, "")
    assert str(DeltaTable(path).schema().fields[0].type) == 'PrimitiveType("decimal(10,2)")'
    assert refused == 1
    assert '1 value of code cannot become long, such as "x"' in why
    assert "choose json: it is not null" in why
    assert DeltaTable(path).version() == 1


def test_replace_makes_a_column_not_null_or_says_why_not(run: Lakefeed, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = {"code": pa.array(["1", "2"], pa.string()), "note": pa.array(["x", None], pa.string())}
    write_deltalake(path, pa.table(rows))

    code, told, said = run("replace", path, "--column", "code long not null", "--yes")
    refused, _, why = run("replace", path, "--column", "note string not null", "--or-null", "--yes")

    assert (code, refused) == (0, 1), said + why
    assert "column code is string, would be long not null" in told
    assert "1 value of note is null, so it cannot be not null.\nNothing was changed." in why
    assert "--where 'note is null'" in why
    [column, _] = DeltaTable(path).schema().fields
    assert (str(column.type), column.nullable) == ('PrimitiveType("long")', False)


def test_replace_where_repairs_exactly_those_rows(run: Lakefeed, tmp_path: Path) -> None:
    path = small_files(tmp_path / "t", positions="shop/clicks/0")
    write_deltalake(tmp_path / "fix", pa.table({"day": ["2026-11-02"] * 2, "id": [11, 13]}))

    _, planned, _ = run("replace", path, "--where", "day = '2026-11-02'", "--from", tmp_path / "fix")
    run("replace", path, "--where", "day = '2026-11-02'", "--from", tmp_path / "fix", "--yes")

    assert "3 rows would be removed from at most 3 files" in planned
    assert f"2 rows of {tmp_path / 'fix'} would be added" in planned
    assert ids(path) == [0, 2, 4, 11, 13]
    assert DeltaTable(path).transaction_version("shop/clicks/0") == 5


@pytest.mark.parametrize(
    ("rows", "code", "told"),
    [
        ({"id": [1], "day": ["2026-11-09"]}, 1, "some rows do not meet \"day = '2026-11-02'\""),
        ({"id": [1]}, 2, "lacks day; it must have the table's 2 columns: id long, day string"),
        ({"id": [1], "day": ["2026-11-02"], "x": [1]}, 2, "also has x; it must have"),
        ({"id": ["one"], "day": ["2026-11-02"]}, 1, "its rows do not fit the table"),
    ],
)
def test_replace_with_wrong_rows_changes_nothing(
    rows: dict[str, Any], code: int, told: str, run: Lakefeed, tmp_path: Path
) -> None:
    path = small_files(tmp_path / "t")
    pq.write_table(pa.table(rows), tmp_path / "fix.parquet")

    found, _, said = run(
        "replace", path, "--where", "day = '2026-11-02'", "--from", tmp_path / "fix.parquet", "--yes"
    )

    assert found == code
    assert told in said
    assert DeltaTable(path).version() == 5


def test_replace_partition_by_moves_every_row_and_keeps_what_the_table_is(
    run: Lakefeed, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    moments = pa.array([1_763_202_600_000_000, 1_763_289_000_000_000], pa.timestamp("us", "UTC"))
    write_table(
        path,
        [{"id": [1, 2], "at": moments, "country": ["DE", "AT"]}],
        partition_by=["country"],
        properties={"delta.logRetentionDuration": "interval 40 days"},
        positions="shop/clicks/0",
    )

    _, planned, _ = run("replace", path, "--partition-by", "day(at), country")
    run("replace", path, "--partition-by", "day(at), country", "--yes")
    _, again, _ = run("replace", path, "--partition-by", "at_day, country")
    run("replace", path, "--partition-by", "", "--yes")
    table = DeltaTable(path)

    assert "partitioned by country, would be partitioned by at_day, country" in planned
    assert "Stop the pipeline first, and give its file the same `partition_by`" in planned
    assert "already partitioned like this" in again
    assert table.metadata().partition_columns == []
    assert table.metadata().configuration == {"delta.logRetentionDuration": "interval 40 days"}
    assert table.transaction_version("shop/clicks/0") == 0
    rows = table.to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], row["country"], str(row["at_day"])) for row in rows] == [
        (1, "DE", "2025-11-15"),
        (2, "AT", "2025-11-16"),
    ]
