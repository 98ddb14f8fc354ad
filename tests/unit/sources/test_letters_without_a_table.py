"""A reader of a Delta table that has dead letters and no position: it counts rows as its letters do."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline, TableError
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from support.ledger import dead_letters

FILE = """\
name: shop
sources: {items: {type: delta, path: itemsOPTIONS}}
tables: {rows: {path: rows, from: items, python: "FUNCTION"}}
"""
FEED = {"delta.enableChangeDataFeed": "true"}
CODE = """\
def nothing(batch):
    raise ValueError("no")

def even(batch):
    if any(one % 2 for one in batch["id"].to_pylist()):
        raise ValueError("odd")
    return batch

def everything(batch):
    return batch
"""


class Shop:
    """A table `items` that feeds a table `rows`, through a function."""

    def __init__(self, folder: Path, options: str) -> None:
        self.folder, self._options = folder, options
        (folder / "shape.py").write_text(CODE)
        self._next = 0

    def pipeline(self, function: str) -> Pipeline:
        (self.folder / "shop.yaml").write_text(
            FILE.replace("OPTIONS", self._options).replace("FUNCTION", f"shape:{function}")
        )
        return Pipeline.from_file(self.folder / "shop.yaml")

    def add(self, count: int) -> None:
        """Commit some more items."""
        ids = list(range(self._next, self._next + count))
        self._next += count
        write_deltalake(self.folder / "items", pa.table({"id": ids}), mode="append", configuration=FEED)

    def run(self, function: str) -> None:
        run_inline(self.pipeline(function))

    def run_in_vain(self) -> None:
        """Nothing tells which columns the table has, so the run ends with an error."""
        with pytest.raises(TableError, match="no schema can be inferred"):
            self.run("nothing")

    def drop(self) -> None:
        shutil.rmtree(self.folder / "rows")

    def rows(self) -> list[int]:
        return sorted(DeltaTable(self.folder / "rows").to_pyarrow_table()["id"].to_pylist())

    def dead(self) -> list[int]:
        letters = dead_letters(self.folder / "shop_dead_letters")
        return sorted(json.loads(one["payload"])["id"] for one in letters)


@pytest.fixture(params=["", ", change_feed: true"])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    return Shop(tmp_path, request.param)


def test_each_row_is_one_dead_letter_until_there_is_a_table(shop: Shop) -> None:
    for count in (2, 1, 3):
        shop.add(count)
        shop.run_in_vain()
    DeltaTable(shop.folder / "items").optimize.compact()
    shop.run("nothing")

    assert not (shop.folder / "rows").exists()
    assert shop.dead() == [0, 1, 2, 3, 4, 5]


def test_a_table_that_is_waited_for_is_counted_from_its_first_row(shop: Shop) -> None:
    """The first run has begun before there was anything: all letters are of versions behind that."""
    text = FILE.replace("{type: delta, path: itemsOPTIONS}", "{type: generate, rows: ROWS}").replace(
        "rows: {path: rows, from: items",
        "bronze: {path: bronze, from: items}, rows: {path: rows, from: bronze",
    )
    for rows in (0, 3, 3, 5):
        file = shop.folder / "shop.yaml"
        file.write_text(text.replace("FUNCTION", "shape:nothing").replace("ROWS", str(rows)))
        with suppress(TableError):
            run_inline(Pipeline.from_file(file))

    letters = dead_letters(shop.folder / "shop_dead_letters")
    assert sorted(json.loads(one["payload"])["event_id"] for one in letters) == [0, 1, 2, 3, 4]


def test_later_rows_make_the_table_and_a_replay_brings_the_letters(shop: Shop) -> None:
    for count in (2, 1):
        shop.add(count)
        shop.run_in_vain()
    shop.add(2)

    (planned,) = plan_run(shop.pipeline("everything")).tables
    shop.run("everything")
    assert (shop.rows(), shop.dead()) == ([3, 4], [0, 1, 2])
    assert any("3 events are dead letters of this table already" in text for text in planned.warnings)
    replay(shop.pipeline("everything"), DeadLetterFilter())

    assert (shop.rows(), shop.dead()) == ([0, 1, 2, 3, 4], [])
    assert verify(shop.pipeline("everything")).sound


def test_a_dropped_table_is_read_again_and_what_does_not_fit_is_one_dead_letter(shop: Shop) -> None:
    for count in (4, 4):
        shop.add(count)
        shop.run("even")
    shop.drop()
    shop.add(2)
    shop.run("even")

    assert shop.rows() == [0, 2, 4, 6, 8]
    assert shop.dead() == [1, 3, 5, 7, 9]
    assert verify(shop.pipeline("even")).sound


def test_a_dropped_table_gets_the_rows_of_letters_that_were_replayed(shop: Shop) -> None:
    for count in (4, 4):
        shop.add(count)
        shop.run("even")
    replay(shop.pipeline("everything"), DeadLetterFilter())
    shop.drop()
    shop.run("everything")

    assert (shop.rows(), shop.dead()) == ([*range(8)], [])


def test_rows_that_were_deleted_since_do_not_come_back(shop: Shop) -> None:
    shop.add(4)
    shop.run("even")
    shop.drop()
    DeltaTable(shop.folder / "items").delete("id = 2")
    shop.run("even")

    assert shop.rows() == [0]


def test_what_a_vacuum_has_taken_since_stops_nobody(shop: Shop) -> None:
    for count in (4, 4):
        shop.add(count)
        shop.run("even")
    shop.drop()
    items = DeltaTable(shop.folder / "items")
    items.optimize.compact()
    items.vacuum(0, dry_run=False, enforce_retention_duration=False)
    shop.run("even")

    assert shop.rows() == [0, 2, 4, 6]
    assert shop.dead() == [1, 3, 5, 7]
