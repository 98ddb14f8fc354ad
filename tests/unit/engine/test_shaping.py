"""Tables that shape their rows with `select`, `where` and `expect`; without Spark, a broker or a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine import inline
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import RowsShaped, RunEvent
from lakefeed.errors import SqlError, TableError
from lakefeed.handles.shaping import EVENTS
from lakefeed.pipeline.test_file import Sample
from lakefeed.reports.plan import plan
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.plan.shaped_sample import BY_ARROW
from lakefeed.reports.verify import verify
from lakefeed.reprocess import replay as replaying
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from lakefeed.sources import source_of
from lakefeed.sources.samples import SampleSource
from lakefeed.tables.table import commit_info_of
from support.analyzing import analyze_by_hand
from support.ledger import dead_letters


class Shop:
    """A pipeline with one table, over given events."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.events = folder, folder / "shop.yaml", list[Any]()
        self.told: list[RunEvent] = []

    def write(self, options: str) -> None:
        self.file.write_text(
            "name: shop\n"
            "sources: {shop: {type: kafka, brokers: 'localhost:1', topics: orders, format: json}}\n"
            f"tables:\n  orders:\n    path: orders\n    from: shop\n{options}\n"
        )

    def send(self, *events: Any) -> None:
        self.events += events

    def pipeline(self) -> Pipeline:
        pipeline = Pipeline.from_file(self.file)
        samples = [Sample.model_validate({"topic": "orders", "text": json.dumps(one)}) for one in self.events]
        given = SampleSource.of(source_of(pipeline, "shop"), "shop", samples)
        return pipeline.model_copy(update={"sources": {"shop": given}})

    def run(self) -> None:
        run_inline(self.pipeline(), self.told.append)

    def stops(self) -> str:
        with pytest.raises(TableError) as stopped:
            self.run()
        return str(stopped.value)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.folder / "orders")

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.table.to_pyarrow_table().to_pylist(), key=str)

    def types(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in pa.schema(self.table.schema().to_arrow())}

    def decoded(self) -> list[str]:
        return [one["name"] for one in json.loads(self.table.metadata().configuration[EVENTS])["fields"]]

    def commit_info(self) -> dict[str, Any]:
        return commit_info_of(self.table.history(1)[0])

    def letters(self) -> list[tuple[str, str, str]]:
        found = dead_letters(self.folder / "shop_dead_letters")
        return [(one["stage"], one["code"], one["error"]) for one in found]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    for module in (inline, plan, replaying):
        monkeypatch.setattr(module, "analyze_here", analyze_by_hand)
    return Shop(tmp_path)


def test_select_names_the_columns_of_the_table_and_other_fields_are_ignored(shop: Shop) -> None:
    shop.write("    select: [id AS order_id, price]")
    shop.send({"id": 1, "price": 9, "debug": "x"}, {"id": 2, "price": 8})
    shop.run()
    shop.send({"id": 3, "price": 7, "brand": "acme"})
    shop.run()

    assert shop.types() == {"order_id": "int64", "price": "int64"}
    assert [row["order_id"] for row in shop.rows()] == [1, 2, 3]
    assert shop.decoded() == ["id", "price"]
    assert verify(shop.pipeline()).sound


def test_a_star_grows_with_the_events_and_takes_metadata_along(shop: Shop) -> None:
    shop.write("    select: ['*', price AS gross]\n    metadata: [_offset]")
    shop.send({"price": 9})
    shop.run()
    shop.send({"price": 8, "brand": "acme"})
    shop.run()

    assert shop.types() == {"price": "int64", "_offset": "int64", "gross": "int64", "brand": "string"}
    assert shop.rows()[0] == {"price": 8, "_offset": 1, "gross": 8, "brand": "acme"}
    assert shop.decoded() == ["price", "brand"]


def test_rows_that_where_leaves_out_are_counted_and_verify_proves_them(shop: Shop) -> None:
    shop.write("    where: price > 5")
    shop.send({"price": 9}, {"price": 5}, {"price": None}, {"price": 7})
    shop.run()

    assert shop.rows() == [{"price": 7}, {"price": 9}]
    assert shop.commit_info()["filtered"] == {"orders-0": 2}
    assert verify(shop.pipeline()).sound


def test_verify_finds_a_wrong_number_of_filtered_rows(shop: Shop) -> None:
    shop.write("    where: price > 5")
    shop.send({"price": 9}, {"price": 5})
    shop.run()
    entry = sorted((shop.folder / "orders" / "_delta_log").glob("*.json"))[-1]
    text = entry.read_text()
    assert '\\"filtered\\":{\\"orders-0\\":1}' in text
    entry.write_text(text.replace('\\"filtered\\":{\\"orders-0\\":1}', '\\"filtered\\":{\\"orders-0\\":0}'))

    assert not verify(shop.pipeline()).sound


def test_a_batch_of_which_nothing_is_left_moves_the_position(shop: Shop) -> None:
    shop.write("    where: price > 5")
    shop.send({"price": 9})
    shop.run()
    shop.send({"price": 1}, {"price": 2})
    shop.run()

    assert shop.commit_info()["ranges"] == {"orders-0": [1, 3, 2, 0]}
    assert shop.commit_info()["filtered"] == {"orders-0": 2}
    assert verify(shop.pipeline()).sound


RULES = """
    expect:
      cheap: {that: price < 100, otherwise: warn}
      paid: {that: price > 0, otherwise: drop}
      known: brand IS NOT NULL
"""


def test_each_rule_is_counted_and_does_what_its_otherwise_says(shop: Shop) -> None:
    shop.write(RULES)
    shop.send(
        {"price": 9, "brand": "a"}, {"price": 100, "brand": "b"}, {"price": 0, "brand": "c"}, {"price": 5}
    )
    shop.run()

    assert [row["price"] for row in shop.rows()] == [100, 9]
    assert shop.letters() == [("expect", "known", "`brand IS NOT NULL` is not met: brand is null")]
    info = shop.commit_info()
    assert info["filtered"] == {"orders-0": 1}
    assert info["expectations"] == {
        "cheap": {"passed": 3, "warned": 1},
        "paid": {"passed": 3, "dropped": 1},
        "known": {"passed": 3, "dead_letter": 1},
    }
    (told,) = [one for one in shop.told if isinstance(one, RowsShaped)]
    assert (told.filtered, told.expectations) == (1, info["expectations"])
    assert verify(shop.pipeline()).sound


def test_a_row_that_is_dropped_and_dead_is_dead_so_that_it_can_be_replayed(shop: Shop) -> None:
    shop.write(RULES)
    shop.send({"price": 9, "brand": "a"}, {"price": 0})
    shop.run()

    assert len(shop.letters()) == 1
    assert "filtered" not in shop.commit_info()


def test_a_rule_that_fails_stops_the_table_before_anything_of_the_batch_lands(shop: Shop) -> None:
    shop.write("    expect: {paid: {that: price > 0, otherwise: fail}, known: brand IS NOT NULL}")
    shop.send({"price": 9, "brand": "a"})
    shop.run()
    shop.send({"price": 8, "brand": "b"}, {"price": -3, "brand": "c"}, {"price": -4}, {"price": 1})

    told = shop.stops()

    assert "table orders: 2 rows of a batch do not meet `expect.paid`" in told
    assert "`price > 0`: price is -3" in told
    assert shop.rows() == [{"price": 9, "brand": "a"}]
    assert not (shop.folder / "shop_dead_letters" / "_delta_log").exists()


def test_a_column_that_no_event_has_is_told_with_the_line_before_anything_lands(shop: Shop) -> None:
    shop.write("    select:\n      - id\n      - prise")
    shop.send({"id": 1, "price": 9})

    told = shop.stops()

    assert told == f"{shop.file}:9: tables.orders.select.1: a column with name `prise` cannot be resolved"
    assert not (shop.folder / "orders").exists()


def test_with_a_declared_schema_wrong_sql_is_told_before_anything_is_read(shop: Shop) -> None:
    shop.write("    schema: {id: long}\n    where: prise > 1")

    with pytest.raises(SqlError) as stopped:
        shop.run()

    assert str(stopped.value).startswith(f"{shop.file}:8: tables.orders.where: ")
    assert not (shop.folder / "orders").exists()


def test_select_may_name_another_field_of_inferred_events_later(shop: Shop) -> None:
    shop.write("    select: [id]")
    shop.send({"id": 1, "brand": "a"})
    shop.run()
    shop.write("    select: [id, brand]")
    shop.send({"id": 2, "brand": "b"})
    shop.run()

    assert shop.rows() == [{"id": 1, "brand": None}, {"id": 2, "brand": "b"}]
    assert shop.decoded() == ["id", "brand"]


def test_select_on_a_table_that_was_fed_without_it_decodes_by_the_types_it_has(shop: Shop) -> None:
    shop.write("    schema: {id: int, brand: string}")
    shop.send({"id": 1, "brand": "a"})
    shop.run()
    shop.write("    select: [id, brand AS maker]")
    shop.send({"id": 2, "brand": "b"})
    shop.run()

    assert shop.types() == {"id": "int32", "brand": "string", "maker": "string"}
    assert shop.rows()[1] == {"id": 2, "brand": None, "maker": "b"}


def test_a_wider_column_of_the_table_takes_what_select_makes(shop: Shop) -> None:
    write_deltalake(shop.folder / "orders", pa.table({"id": pa.array([], pa.int64())}))
    shop.write("    schema: {id: int}\n    select: [id]\n    expect: {paid: id > 0}")
    shop.send({"id": 1})
    shop.run()

    assert shop.rows() == [{"id": 1}]


def test_a_type_that_the_table_cannot_hold_is_told_with_line_and_both_types(shop: Shop) -> None:
    write_deltalake(shop.folder / "orders", pa.table({"id": pa.array([], pa.int32())}))
    shop.write("    schema: {id: long}\n    select: [id]")

    told = shop.stops()

    assert told.startswith(
        f"{shop.file}:8: tables.orders.select.0: makes column id long, and the table has int"
    )


def test_a_not_null_column_of_the_table_makes_rows_without_it_dead_letters(shop: Shop) -> None:
    shop.write("    schema: {id: long not null, price: long}\n    select: [id, price]")
    shop.send({"id": 1, "price": 2})
    shop.run()
    shop.write("    schema: {id: long, price: long}\n    select: [id, price]")
    shop.send({"price": 3})
    shop.run()

    assert shop.rows() == [{"id": 1, "price": 2}]
    assert shop.letters() == [("select", "missing_value", "id: expected long not null, got null")]


def test_new_columns_follow_the_rule_where_there_is_a_star(shop: Shop) -> None:
    shop.write("    select: ['*']\n    evolve: fail")
    shop.send({"id": 1})
    shop.run()
    shop.send({"id": 2, "brand": "a"})

    assert "`evolve.new_column` is fail: brand string" in shop.stops()


def test_partitions_may_be_derived_from_what_select_makes(shop: Shop) -> None:
    shop.write(
        "    schema: {ts: timestamp, id: long}\n    select: [id, ts AS at]\n    partition_by: [day(at)]"
    )
    shop.send({"id": 1, "ts": "2026-11-16T10:00:00Z"})
    shop.run()

    (partition,) = shop.table.metadata().partition_columns
    assert str(shop.rows()[0][partition]) == "2026-11-16"


def routed(shop: Shop, options: str) -> None:
    shop.write(options)
    shop.file.write_text(shop.file.read_text().replace("    path: orders\n", "    route: 'orders_{kind}'\n"))


def table_of(shop: Shop, kind: str) -> list[dict[str, Any]]:
    rows = DeltaTable(shop.folder / f"orders_{kind}").to_pyarrow_table().to_pylist()
    return sorted(rows, key=str)


def test_a_route_goes_by_what_select_makes(shop: Shop) -> None:
    routed(shop, "    select: [id, type AS kind]\n    where: id > 0\n    expect: {small: id < 100}")
    shop.send({"id": 1, "type": "a"}, {"id": 2, "type": "b", "x": 1}, {"id": 0, "type": "b"})
    shop.run()
    shop.send({"id": 3, "type": "a"}, {"id": 100, "type": "b"}, {"id": 4, "type": "c"})
    shop.run()

    assert table_of(shop, "a") == [{"id": 1, "kind": "a"}, {"id": 3, "kind": "a"}]
    assert table_of(shop, "b") == [{"id": 2, "kind": "b"}]
    assert table_of(shop, "c") == [{"id": 4, "kind": "c"}]
    assert [letter[:2] for letter in shop.letters()] == [("expect", "small")]
    assert verify(shop.pipeline()).sound
    told = [one for one in shop.told if isinstance(one, RowsShaped)]
    assert [one.filtered for one in told] == [1, 0]
    assert told[1].expectations == {"small": {"passed": 2, "dead_letter": 1}}


def test_with_a_star_each_table_of_a_route_has_the_columns_that_its_events_fill(shop: Shop) -> None:
    routed(shop, "    select: ['*', type AS kind]")
    shop.send({"id": 1, "type": "a"}, {"id": 2, "type": "b", "x": 1.5})
    shop.run()
    shop.send({"id": 3, "type": "a", "y": True}, {"id": 4, "type": "b", "x": 2})
    shop.run()

    assert table_of(shop, "a")[1] == {"id": 3, "type": "a", "kind": "a", "y": True}
    assert table_of(shop, "b")[1] == {"id": 4, "type": "b", "x": 2.0, "kind": "b"}


def test_wrong_sql_of_a_route_is_told_with_its_line(shop: Shop) -> None:
    routed(shop, "    select: [id, typo AS kind]")
    shop.send({"id": 1, "type": "a"})

    assert shop.stops().startswith(f"{shop.file}:7: tables.orders.select.1: ")


def test_plan_shows_what_sql_makes_of_a_sample_and_which_way(shop: Shop) -> None:
    shop.write("    select: [id AS order_id]\n    where: id > 1\n    expect: {small: order_id < 3}")
    shop.send({"id": 1, "x": "y"}, {"id": 2}, {"id": 3})

    (planned,) = plan_run(shop.pipeline()).tables

    assert (planned.action, planned.columns) == ("create", ["order_id long"])
    assert planned.shaping == [
        "where id > 1",
        "select id AS order_id",
        "expect small: order_id < 3, otherwise dead_letter",
    ]
    assert planned.way == BY_ARROW
    assert (planned.sampled_filtered, planned.sampled_dead_letters) == (1, {"small": 1})
    assert planned.expectations == {"small": {"passed": 1, "dead_letter": 1}}


def test_plan_shows_the_columns_that_a_star_would_add(shop: Shop) -> None:
    shop.write("    select: ['*', id AS order_id]")
    shop.send({"id": 1})
    shop.run()
    shop.send({"id": 2, "brand": "acme"})

    (planned,) = plan_run(shop.pipeline()).tables

    assert (planned.action, planned.columns) == ("alter", ["brand string"])


def test_plan_tells_wrong_sql_with_its_line(shop: Shop) -> None:
    shop.write("    select: [id, prise]")
    shop.send({"id": 1})

    (planned,) = plan_run(shop.pipeline()).tables

    assert (planned.refused or "").startswith(f"{shop.file}:7: tables.orders.select.1: ")


def test_dead_letters_of_a_rule_become_rows_once_the_file_is_corrected(shop: Shop) -> None:
    shop.write("    select: [id, price]\n    expect: {paid: price > 0}")
    shop.send({"id": 1, "price": 5}, {"id": 2, "price": 0}, {"id": 3, "price": -1})
    shop.run()
    shop.write("    select: [id, price]\n    where: price > -1")

    (report,) = replay(shop.pipeline(), DeadLetterFilter())

    assert (report.rows, report.left_out, report.again) == (1, 1, [])
    assert [row["id"] for row in shop.rows()] == [1, 2]
    assert shop.letters() == []
    assert verify(shop.pipeline()).sound


def test_replayed_letters_that_still_break_the_rule_stay(shop: Shop) -> None:
    shop.write("    select: [id, price]\n    expect: {paid: price > 0}")
    shop.send({"id": 1, "price": 5}, {"id": 2, "price": 0})
    shop.run()

    (report,) = replay(shop.pipeline(), DeadLetterFilter())

    assert [(one.stage, one.code, one.dead_letters) for one in report.again] == [("expect", "paid", 1)]
    assert len(shop.letters()) == 1


def test_a_replay_into_a_rule_that_fails_is_told_and_lands_nothing(shop: Shop) -> None:
    shop.write("    expect: {paid: price > 0}")
    shop.send({"price": 5}, {"price": 0})
    shop.run()
    shop.write("    expect: {paid: {that: price > 0, otherwise: fail}}")

    with pytest.raises(TableError, match=r"expect\.paid"):
        replay(shop.pipeline(), DeadLetterFilter())

    assert len(shop.letters()) == 1


def test_after_a_rewind_the_same_events_become_the_same_rows(shop: Shop) -> None:
    shop.write("    select: ['*', id AS order_id]\n    where: id > 1")
    shop.send({"id": 1}, {"id": 2})
    shop.run()
    version = shop.table.version()
    shop.send({"id": 3, "brand": "acme"}, {"id": 0})
    shop.run()
    before = shop.rows()

    rewind(shop.pipeline(), "orders", to_version=version)
    rewound = shop.rows()
    shop.run()

    assert [row["id"] for row in rewound] == [2]
    assert shop.rows() == before
    assert verify(shop.pipeline()).sound


def test_letters_for_which_a_new_function_raises_stay(shop: Shop) -> None:
    shop.write("    select: [id, price]\n    expect: {paid: price > 0}")
    shop.send({"id": 1, "price": 5}, {"id": 2, "price": 0}, {"id": 3, "price": 0})
    shop.run()
    (shop.folder / "fixing.py").write_text("def fix(batch):\n    raise ValueError('not yet')\n")
    shop.write("    select: [id, price]\n    python: fixing:fix")

    (report,) = replay(shop.pipeline(), DeadLetterFilter())

    assert report.rows == 0
    assert len(shop.letters()) == 2


def test_a_new_function_that_returns_no_row_stops_the_table_and_loses_no_event(shop: Shop) -> None:
    shop.write("    select: [id]")
    shop.send({"id": 1})
    shop.run()
    (shop.folder / "emptying.py").write_text("def none(batch):\n    return batch.slice(0, 0)\n")
    shop.write("    select: [id]\n    python: emptying:none")
    shop.send({"id": 2})

    told = shop.stops()
    shop.write("    select: [id]")
    shop.run()

    assert "`python: emptying:none` has returned no row" in told
    assert [row["id"] for row in shop.rows()] == [1, 2]
