"""The process is killed around a refresh: the table holds the old rows or the new ones, and both whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.reports.verify import verify
from support.duck_query import refresh_all
from support.faultpoints import REFRESH_POINTS
from support.forks import call, ended, start

FILE = """\
name: shop
sources: {clicks: {type: generate, rows: 1}}
tables:
  orders: {path: orders, from: clicks}
  cities:
    path: cities
    query: SELECT city, count(*) AS orders FROM orders GROUP BY city
  total:
    path: total
    query: SELECT sum(orders)::BIGINT AS orders FROM cities
"""


@pytest.mark.parametrize("nth", [1, 4])
@pytest.mark.parametrize("point", REFRESH_POINTS)
def test_a_kill_around_a_refresh_leaves_whole_rows_and_the_next_run_ends_it(
    point: str, nth: int, tmp_path: Path
) -> None:
    """The first two refreshes make the tables, the third and the fourth replace their rows."""
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    _order(tmp_path, "Rome", "Oslo")
    if nth > 2:
        refresh_all(Pipeline.from_file(file))
        _order(tmp_path, "Rome")

    code = _killed(file, f"{point}:{nth - 2 if nth > 2 else nth}")
    seen = _rows(tmp_path, "cities")
    refresh_all(Pipeline.from_file(file))

    assert code == -9
    assert seen in ([], [("Oslo", 1), ("Rome", 1)], [("Oslo", 1), ("Rome", 2)])
    assert nth <= 2 or seen, "rows that were there stay until others take their place"
    orders = 3 if nth > 2 else 2
    assert _rows(tmp_path, "cities") == [("Oslo", 1), ("Rome", orders - 1)]
    assert _rows(tmp_path, "total") == [(orders,)]
    versions = [DeltaTable(tmp_path / name).version() for name in ("cities", "total")]
    refresh_all(Pipeline.from_file(file))
    assert versions == [DeltaTable(tmp_path / name).version() for name in ("cities", "total")]
    proof = verify(Pipeline.from_file(file))
    assert [table.findings for table in proof.tables[1:]] == [[], []]


def _order(folder: Path, *cities: str) -> None:
    write_deltalake(folder / "orders", pa.table({"city": list(cities)}), mode="append")


def _rows(folder: Path, table: str) -> list[tuple[object, ...]]:
    if not (folder / table / "_delta_log").exists():
        return []
    found = DeltaTable(folder / table).to_pyarrow_table()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def refresh(file: Path) -> None:
    refresh_all(Pipeline.from_file(file))


def _killed(file: Path, point: str) -> int:
    process = start(call, "faults.test_kill_refresh:refresh", file, env={"LAKEFEED_KILL_AT": point})
    return ended(process)
