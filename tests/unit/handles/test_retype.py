"""A column of a table gets another type."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import UsageError
from lakefeed.columns.column_types import meant_text, type_text
from lakefeed.handles import retype
from lakefeed.stores import open_store
from lakefeed.tables.detail.detail import describe
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change


def table(folder: Path, values: list[object], kind: pa.DataType | None = None) -> LakeTable:
    rows = pa.table({"id": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, kind)})
    write_deltalake(str(folder), rows)
    found = LakeTable.open("t", str(folder), {}, open_store(str(folder), {}))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("values", "kind", "made"),
    [
        (["1.5", "-2", None], "double", [1.5, -2.0, None]),
        (["7"], "long", [7]),
        (["12.50"], "decimal(10,2)", ["12.50"]),
        (["2026-11-15T10:00:00Z"], "timestamp", ["2026-11-15 10:00:00+00:00"]),
        (["true"], "boolean", [True]),
        ([1, 2], "double", [1.0, 2.0]),
        ([1.5, 2.0], "string", ["1.5", "2.0"]),
        ([1, None], "json", ["1", None]),
        ([{"a": 1}], "json", ['{"a":1}']),
    ],
)
def test_values_that_fit_keep_their_meaning(
    tmp_path: Path, values: list[object], kind: str, made: list[object]
) -> None:
    old = table(tmp_path / "t", values)
    append(old, Change([], {"shop/clicks/0": 9}, {}, {}), retries=0)

    plan = retype.plan(old, {"v": kind})
    retype.run(old, plan, {"kind": "replace"})

    new = DeltaTable(tmp_path / "t")
    rows = new.to_pyarrow_table().sort_by("id").column("v").to_pylist()
    assert not plan.misfits
    assert [row if isinstance(row, (bool, float, int, type(None))) else str(row) for row in rows] == made
    assert new.transaction_version("shop/clicks/0") == 9
    assert meant_text(pa.schema(new.schema().to_arrow()).field("v")) == kind


def test_values_that_do_not_fit_are_counted_first_and_become_null(tmp_path: Path) -> None:
    old = table(tmp_path / "t", ["1.5", "n/a", None, ""])

    plan = retype.plan(old, {"v": "double"})
    retype.run(old, plan, {"kind": "replace"})

    assert plan.misfits == {"v": retype.Misfits(2, '"n/a"')}
    assert sorted(DeltaTable(tmp_path / "t").to_pyarrow_table().column("v").to_pylist(), key=str) == [
        *(1.5, None, None, None)
    ]


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ({"w": "long"}, "the table has no column 'w'"),
        ({"v": "lnog"}, "unknown type 'lnog'"),
        ({"v": "struct<a: long>"}, "cannot become struct<a: long>"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, column: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        retype.plan(table(tmp_path / "t", ["x"]), column)


def test_a_column_that_has_the_type_already_is_left_alone(tmp_path: Path) -> None:
    assert retype.plan(table(tmp_path / "t", ["x"]), {"v": "string"}).nothing


def test_a_column_is_called_json_where_it_is_meant(tmp_path: Path) -> None:
    old = table(tmp_path / "t", [1, 2])
    retype.run(old, retype.plan(old, {"v": "json"}), {"kind": "replace"})

    plan = retype.plan(old, {"v": "string"})
    shown = describe(old).schema["v"]
    retype.run(old, plan, {"kind": "replace"})

    assert shown == plan.was["v"] == "json"
    assert type_text(plan.declared.field("v").type) == describe(old).schema["v"] == "string"


@pytest.mark.parametrize("kind", ["double not null", "string not null"])
def test_not_null_holds_from_then_on(tmp_path: Path, kind: str) -> None:
    old = table(tmp_path / "t", ["1.5", "2"])

    plan = retype.plan(old, {"v": kind})
    retype.run(old, plan, {"kind": "replace"})

    assert not plan.nothing
    assert plan.was == {"v": "string"}
    column = pa.schema(DeltaTable(tmp_path / "t").schema().to_arrow()).field("v")
    assert (meant_text(column), column.nullable) == (kind.partition(" ")[0], False)
    assert retype.plan(old, {"v": kind}).nothing


def test_nulls_are_counted_for_a_column_that_shall_have_none(tmp_path: Path) -> None:
    plan = retype.plan(table(tmp_path / "t", ["1.5", None, "n/a", None]), {"v": "double not null"})

    assert plan.misfits == {"v": retype.Misfits(1, '"n/a"', nulls=2)}
