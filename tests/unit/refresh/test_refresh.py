"""Refreshes without Spark: the query is DuckDB's, all around it is what a run has."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Fenced, Pipeline
from lakefeed.engine.run_events import Committed, InputsSeen, Refreshed, RefreshFailed, TableChanged
from lakefeed.errors import LakefeedError, TableError
from lakefeed.refresh.refresher import Refresher
from lakefeed.reports.verify import verify
from lakefeed.reprocess.rewind import rewind
from lakefeed.stores import open_store
from lakefeed.tables.log.log import Log
from support.duck_query import DuckQuery, refresh_all, refresh_of, stopped_after

COUNTS = "SELECT city, count(*) AS orders FROM orders GROUP BY city"


class Shop:
    """A table `orders`, and tables that queries make of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(cities={"query": COUNTS})

    def write(self, **tables: dict[str, object]) -> Pipeline:
        """The pipeline with these tables of queries."""
        document = {
            "name": "shop",
            "sources": {"clicks": {"type": "generate", "rows": 1}},
            "tables": {
                "orders": {"path": "orders", "from": "clicks"},
                **{name: {"path": name, **table} for name, table in tables.items()},
            },
        }
        (self.folder / "shop.yaml").write_text(json.dumps(document))
        self.pipeline = Pipeline.from_file(self.folder / "shop.yaml")
        return self.pipeline

    def order(self, *cities: str) -> None:
        write_deltalake(self.folder / "orders", pa.table({"city": list(cities)}), mode="append")

    def refresh(self, table: str = "cities") -> bool:
        """Bring a table up to date, as a new process would; whether its query was run."""
        one = refresh_of(self.pipeline, table)
        standing = one.look()
        if standing.is_due:
            one.run(standing)
        return standing.is_due

    def rows(self, table: str = "cities") -> list[tuple[object, ...]]:
        found = DeltaTable(self.folder / table).to_pyarrow_table()
        return sorted(tuple(row.values()) for row in found.to_pylist())

    def log(self, table: str = "cities") -> Log:
        log = Log.open(open_store(str(self.folder / table), {}))
        assert log is not None
        return log


class Until:
    """Keeps the events of a run, and stops it when a condition over them holds, or after a minute."""

    def __init__(self, is_over: Callable[[list[object]], bool], stop: threading.Event | None = None) -> None:
        self.events: list[object] = []
        self.stop = stop or stopped_after(60)
        self._is_over = is_over

    def __call__(self, event: object) -> None:
        self.events.append(event)
        if self._is_over(self.events):
            self.stop.set()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_column_that_is_wider_by_now_gets_its_type_before_the_refresh(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.write(cities={"query": "SELECT city, max(n) AS most FROM orders GROUP BY city"})
    write_deltalake(tmp_path / "orders", pa.table({"city": ["a"], "n": [1]}))
    shop.refresh()
    whole = pa.table({"city": ["a"], "n": [1.5]})
    write_deltalake(tmp_path / "orders", whole, mode="overwrite", schema_mode="overwrite")

    shop.refresh()

    assert shop.rows() == [("a", 1.5)]
    assert pa.schema(DeltaTable(tmp_path / "cities").schema().to_arrow()).field("most").type == pa.float64()


def test_a_refresh_replaces_all_rows_in_one_commit_that_names_the_versions_it_is_made_of(shop: Shop) -> None:
    shop.order("Rome", "Rome", "Oslo")
    assert shop.refresh()
    assert shop.rows() == [("Oslo", 1), ("Rome", 2)]

    shop.order("Oslo")
    assert shop.refresh()

    assert shop.rows() == [("Oslo", 2), ("Rome", 2)]
    entry = shop.log().entry(2)
    assert len(entry.adds) == len(entry.removes) == 1
    told = json.loads(entry.info["lakefeed"])
    assert (told["kind"], told["rows"], told["inputs"]) == ("refresh", 2, {"orders": 1})
    assert entry.transactions["shop/#query/orders"] == 1


def test_nothing_is_done_while_the_inputs_have_not_changed(shop: Shop) -> None:
    shop.order("Rome")
    assert shop.refresh()
    assert not shop.refresh()

    assert shop.log().newest == 1


def test_a_compaction_of_an_input_is_no_news(shop: Shop) -> None:
    shop.order("Rome")
    shop.order("Oslo")
    assert shop.refresh()

    assert DeltaTable(shop.folder / "orders").optimize.compact()["numFilesRemoved"] == 2

    assert not shop.refresh()
    shop.order("Rome")
    assert shop.refresh()
    assert shop.rows() == [("Oslo", 1), ("Rome", 2)]


def test_a_refresh_reads_the_versions_that_were_there_when_it_began(shop: Shop) -> None:
    shop.order("Rome")
    one = refresh_of(shop.pipeline, "cities")
    standing = one.look()
    shop.order("Oslo")

    one.run(standing)

    assert shop.rows() == [("Rome", 1)]
    assert shop.refresh() and shop.rows() == [("Oslo", 1), ("Rome", 1)]


def test_another_query_is_run_although_the_inputs_are_the_same(shop: Shop) -> None:
    shop.order("Rome", "Oslo")
    assert shop.refresh()

    shop.write(cities={"query": COUNTS + " HAVING city < 'P'"})

    assert shop.refresh() and shop.rows() == [("Oslo", 1)]
    assert not shop.refresh()


def test_an_input_that_was_made_anew_is_another_table_whatever_its_version(shop: Shop) -> None:
    shop.order("Rome")
    assert shop.refresh()

    (shop.folder / "orders").rename(shop.folder / "old")
    shop.order("Oslo")

    assert shop.refresh() and shop.rows() == [("Oslo", 1)]


def test_an_input_that_is_no_longer_read_is_forgotten(shop: Shop) -> None:
    shop.order("Rome")
    shop.write(other={"query": "SELECT 1::INT AS n FROM orders"}, cities={"query": f"{COUNTS}, 1"})
    two = "SELECT city, count(*) AS orders FROM orders, other GROUP BY city"
    shop.write(other={"query": "SELECT 1::INT AS n FROM orders"}, cities={"query": two})
    assert shop.refresh("other") and shop.refresh()

    shop.write(cities={"query": COUNTS})

    assert shop.refresh()
    assert not shop.refresh()


def test_a_query_of_a_query_is_run_when_that_has_other_rows(shop: Shop) -> None:
    shop.order("Rome", "Oslo", "Oslo")
    shop.write(
        cities={"query": COUNTS}, top={"query": "SELECT city FROM cities ORDER BY orders DESC LIMIT 1"}
    )
    events: list[object] = []

    refresh_all(shop.pipeline, events.append)
    assert shop.rows("top") == [("Oslo",)]
    shop.order("Rome", "Rome")
    refresh_all(shop.pipeline, events.append)

    assert shop.rows("top") == [("Rome",)]
    refreshed = [event for event in events if isinstance(event, Refreshed)]
    assert [(one.table, one.inputs) for one in refreshed] == [
        ("cities", {"orders": 0}),
        ("top", {"cities": 1}),
        ("cities", {"orders": 1}),
        ("top", {"cities": 2}),
    ]
    committed = [event for event in events if isinstance(event, Committed)]
    assert all(one.replaces and one.source == "query" for one in committed)


def test_a_query_waits_for_inputs_that_do_not_exist(shop: Shop) -> None:
    events: list[object] = []

    refresh_all(shop.pipeline, events.append)

    assert InputsSeen("cities", missing=("orders",)) in events
    assert not (shop.folder / "cities").exists()


def test_an_empty_result_empties_the_table(shop: Shop) -> None:
    shop.order("Rome")
    assert shop.refresh()
    DeltaTable(shop.folder / "orders").delete()

    assert shop.refresh()

    assert shop.rows() == []
    assert verify(shop.pipeline).tables[1].findings == []


def test_a_second_instance_is_fenced_and_its_files_are_deleted(shop: Shop) -> None:
    shop.order("Rome")
    slow = refresh_of(shop.pipeline, "cities")
    query = slow.query
    assert isinstance(query, DuckQuery)
    query.before_commit = lambda: _true(shop.refresh())

    with pytest.raises(Fenced, match="another instance"):
        slow.run(slow.look())

    assert shop.rows() == [("Rome", 1)]
    assert len(list((shop.folder / "cities").glob("*.parquet"))) == 1


@pytest.mark.parametrize("has_taken_over", [True, False])
def test_run_that_has_taken_over_outlives_the_last_refresh_of_the_other_one(
    shop: Shop, has_taken_over: bool
) -> None:
    shop.write(cities={"query": COUNTS, "refresh": "100ms"})
    shop.order("Rome")
    until = Until(lambda events: isinstance(events[-1], Refreshed))
    refresh = refresh_of(shop.pipeline, "cities", until)
    query = refresh.query
    assert isinstance(query, DuckQuery)

    def overtaken() -> None:
        query.before_commit = lambda: None  # type: ignore[union-attr]
        assert shop.refresh()
        shop.order("Oslo")

    query.before_commit = overtaken
    one = Refresher(refresh, until, until.stop, lambda: has_taken_over)
    assert one.prepare()
    if has_taken_over:
        one.run()
    else:
        with pytest.raises(Fenced):
            one.run()

    # The refresh of the other run had Rome alone.
    assert shop.rows() == ([("Oslo", 1), ("Rome", 1)] if has_taken_over else [("Rome", 1)])


def test_files_that_others_have_added_meanwhile_go_as_well(shop: Shop) -> None:
    shop.order("Rome")
    assert shop.refresh()
    shop.order("Rome")
    slow = refresh_of(shop.pipeline, "cities")
    query = slow.query
    assert isinstance(query, DuckQuery)
    query.before_commit = lambda: write_deltalake(
        shop.folder / "cities",
        pa.table({"city": ["?"], "orders": pa.array([9], pa.int64())}),
        mode="append",
    )

    slow.run(slow.look())

    assert shop.rows() == [("Rome", 2)]


def test_new_columns_follow_the_rule_and_old_ones_stay(shop: Shop) -> None:
    shop.order("Rome")
    assert shop.refresh()
    wider = "SELECT city, 7::INT AS rank FROM orders"

    shop.write(cities={"query": wider, "evolve": "fail"})
    with pytest.raises(TableError, match=r"new columns and `evolve.new_column` is fail: rank int"):
        shop.refresh()
    assert shop.rows() == [("Rome", 1)]
    shop.write(cities={"query": wider, "evolve": "ignore"})
    assert shop.refresh() and shop.rows() == [("Rome", None)]
    shop.write(cities={"query": wider})
    events: list[object] = []
    one = refresh_of(shop.pipeline, "cities", events.append)
    one.run(one.look())

    assert shop.rows() == [("Rome", None, 7)]
    assert TableChanged("cities", "new column rank int") in events


def test_a_narrower_type_is_widened_and_another_one_is_refused(shop: Shop) -> None:
    shop.order("Rome")
    assert shop.refresh()

    shop.write(cities={"query": "SELECT city, 3::INT AS orders FROM orders"})
    assert shop.refresh() and shop.rows() == [("Rome", 3)]
    shop.write(cities={"query": "SELECT city, 'many' AS orders FROM orders"})
    with pytest.raises(TableError) as refused:
        shop.refresh()

    assert str(refused.value).startswith(
        "table cities: column orders is long in the table and string in the query.\nUse CAST in the query"
    )
    assert shop.rows() == [("Rome", 3)]


def test_partitions_and_order_are_those_of_the_file(shop: Shop) -> None:
    shop.order("Rome", "Oslo")
    query = "SELECT city, TIMESTAMPTZ '2026-11-16 23:00:00+00' AS at FROM orders"
    shop.write(days={"query": query, "partition_by": ["day(at)"], "sort_by": ["city"]})

    assert shop.refresh("days")

    assert DeltaTable(shop.folder / "days").metadata().partition_columns == ["at_day"]
    assert [row[0] for row in shop.rows("days")] == ["Oslo", "Rome"]


def test_a_failing_query_keeps_the_rows_is_told_and_tried_again(shop: Shop) -> None:
    shop.order("Rome")
    assert shop.refresh()
    shop.write(cities={"query": "SELECT city, city::INT::BIGINT AS orders FROM orders", "refresh": "100ms"})
    until = Until(lambda events: sum(isinstance(event, RefreshFailed) for event in events) == 2)
    refresher = _refresher(shop.pipeline, "cities", until)

    refresher.run()

    failures = [event for event in until.events if isinstance(event, RefreshFailed)]
    assert len(failures) == 2 and "Could not convert" in failures[0].text
    assert isinstance(refresher.error, LakefeedError)
    assert shop.rows() == [("Rome", 1)]


def test_a_failure_is_over_with_the_rows_that_made_it(shop: Shop) -> None:
    shop.order("12")
    shop.write(cities={"query": "SELECT city::INT AS city FROM orders", "refresh": "100ms"})
    assert shop.refresh()
    shop.order("Rome")
    _refresher(shop.pipeline, "cities", Until(lambda events: isinstance(events[-1], RefreshFailed))).run()

    DeltaTable(shop.folder / "orders").delete("city = 'Rome'")
    until = Until(lambda events: len(events) == 4)
    _refresher(shop.pipeline, "cities", until).run()

    assert [type(event) for event in until.events] == [InputsSeen, Committed, Refreshed, InputsSeen]
    assert shop.rows() == [(12,)]


def test_a_refresher_waits_between_two_refreshes(shop: Shop) -> None:
    class Looks(threading.Event):
        """Waits for nothing, and is set by the last of some looks."""

        left = 20

        def wait(self, timeout: float | None = None) -> bool:
            self.left -= 1
            if not self.left:
                self.set()
            return self.is_set()

    shop.order("Rome")
    shop.write(cities={"query": COUNTS, "refresh": "10m"})
    until = Until(lambda events: False, Looks())
    refresher = _refresher(shop.pipeline, "cities", until)
    query = refresher.refresh.query
    assert isinstance(query, DuckQuery)
    query.before_commit = lambda: shop.order("Oslo")

    refresher.run()

    assert query.ran == [{"orders": 0}]
    assert InputsSeen("cities", {"orders": 0}, {"orders": 1}) in until.events


def test_a_rewind_of_the_table_is_computed_again_by_the_next_run(shop: Shop) -> None:
    shop.order("Rome")
    assert shop.refresh()
    shop.order("Rome")
    assert shop.refresh()

    rewind(shop.pipeline, "cities", to_version=1)
    assert shop.rows() == [("Rome", 1)]
    assert shop.refresh() and shop.rows() == [("Rome", 2)]
    rewind(shop.pipeline, "cities", to_version=0)

    assert shop.rows() == []
    assert shop.refresh() and shop.rows() == [("Rome", 2)]
    assert verify(shop.pipeline).tables[1].findings == []


def test_a_rewind_of_an_input_is_news(shop: Shop) -> None:
    shop.order("Rome")
    shop.order("Oslo")
    assert shop.refresh()

    DeltaTable(shop.folder / "orders").restore(0)

    assert shop.refresh() and shop.rows() == [("Rome", 1)]


def test_one_failing_query_does_not_keep_others_from_being_run(shop: Shop) -> None:
    shop.order("Rome")
    shop.write(broken={"query": "SELECT city::INT AS n FROM orders"}, cities={"query": COUNTS})

    with pytest.raises(TableError, match="table broken: the query failed"):
        refresh_all(shop.pipeline)

    assert shop.rows() == [("Rome", 1)]


def _refresher(pipeline: Pipeline, table: str, until: Until) -> Refresher:
    one = Refresher(refresh_of(pipeline, table, until), until, until.stop, lambda: False)
    assert one.prepare()
    return one


def _true(value: bool) -> None:
    assert value
