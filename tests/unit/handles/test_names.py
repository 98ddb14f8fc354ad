"""Columns of fields whose names a Delta table does not take, or that events spell in several ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import RunEvent, TableChanged
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reprocess.replay import replay
from lakefeed.testing import Sample, assert_rows, run_samples
from support.command_line import Lakefeed
from support.landing import Landing


def lines(*events: dict[str, Any]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def originals(folder: Path) -> dict[str, str]:
    """The names that the metadata of the table's columns holds."""
    fields = DeltaTable(folder / "rows").schema().fields
    return {one.name: one.metadata["lakefeed.name"] for one in fields if "lakefeed.name" in one.metadata}


def names(folder: Path) -> list[str]:
    return [one.name for one in DeltaTable(folder / "rows").schema().fields]


def test_names_that_no_delta_table_takes_are_cleaned_and_the_table_keeps_the_names_of_the_fields(
    tmp_path: Path,
) -> None:
    shop = Landing(tmp_path)
    shop.put("1.json", lines({"US Gross": 1, "IMDB (Rating)": 7.5, "": "x", "Title": "A"}))

    shop.run()

    assert shop.rows() == [{"US_Gross": 1, "IMDB__Rating_": 7.5, "_": "x", "Title": "A"}]
    assert originals(tmp_path) == {"US_Gross": "US Gross", "IMDB__Rating_": "IMDB (Rating)", "_": ""}
    assert shop.letters() == []


def test_lower_makes_new_names_lower_case(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="names: lower")
    shop.put("1.json", lines({"US Gross": 1, "Meta": {"User Id": 2}}))

    shop.run()

    assert shop.rows() == [{"us_gross": 1, "meta": {"user_id": 2}}]


def test_strict_refuses_what_a_delta_table_does_not_take(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="names: strict")
    shop.put("1.json", lines({"id": 1, "US Gross": 1}, {"id": 2}, {"ID": 3}, {"id": 4}))

    shop.run()

    assert shop.rows() == [{"id": 2}, {"id": 4}]
    assert [letter["code"] for letter in shop.letters()] == ["bad_name", "bad_name"]


def test_nested_names_are_cleaned_inside_arrays_and_maps_too(tmp_path: Path) -> None:
    table = "schema: {id: long, by_day: 'map<string, struct<n: long>>'}"
    shop = Landing(tmp_path, table=table)
    event = {
        "id": 1,
        "the items": [{"unit price": 2, "tags": [{"a b": 1}]}],
        "by_day": {"mon day": {"n": 1, "per hour": 3}},
    }
    shop.put("1.json", lines(event))

    shop.run()

    assert shop.rows() == [
        {
            "id": 1,
            "the_items": [{"unit_price": 2, "tags": [{"a_b": 1}]}],
            "by_day": [("mon day", {"n": 1, "per_hour": 3})],
        }
    ]
    assert shop.letters() == []


def test_fields_whose_names_become_one_get_a_number(tmp_path: Path) -> None:
    shop = Landing(tmp_path)
    shop.put("1.json", lines({"a b": 1, "a_b": 2, "a,b": 3, "in": {"x y": 4, "x_y": 5}}))

    shop.run()

    assert shop.rows() == [
        {"a_b": 2, "a_b_2": 3, "a_b_3": 1, "in": {"x_y": 5, "x_y_2": 4}}
    ] or shop.rows() == [{"a_b": 2, "a_b_2": 1, "a_b_3": 3, "in": {"x_y": 5, "x_y_2": 4}}]
    assert shop.letters() == []


@pytest.mark.parametrize("first", ["a b", "a_b"])
def test_a_name_stays_that_of_its_field_whatever_comes_later(tmp_path: Path, first: str) -> None:
    shop = Landing(tmp_path)
    second = {"a b": "a_b", "a_b": "a b"}[first]
    shop.put("1.json", lines({"id": 1, first: "first", "in": {first: "first"}}))
    shop.run()
    shop.put("2.json", lines({"id": 2, second: "second", "in": {second: "second"}}))
    shop.run()
    shop.put("3.json", lines({"id": 3, "a_b": "A_B", "a b": "A B", "in": {"a_b": "A_B", "a b": "A B"}}))

    shop.run()

    own = {first: "a_b", second: "a_b_2"}
    last = {own["a_b"]: "A_B", own["a b"]: "A B"}
    assert shop.rows() == [
        {"id": 1, "a_b": "first", "a_b_2": None, "in": {"a_b": "first", "a_b_2": None}},
        {"id": 2, "a_b": None, "a_b_2": "second", "in": {"a_b": None, "a_b_2": "second"}},
        {"id": 3, **last, "in": last},
    ]
    assert shop.letters() == []


def test_a_declared_column_takes_the_field_whose_cleaned_name_it_has(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="schema: {US_Gross: long not null, meta: 'struct<user_id: long>'}")
    shop.put("1.json", lines({"US Gross": 1, "Meta": {"User Id": 7}}, {"us_gross": 2}))

    shop.run()

    assert shop.rows() == [
        {"US_Gross": 1, "meta": {"user_id": 7}},
        {"US_Gross": 2, "meta": None},
    ]
    assert shop.letters() == []


def test_most_values_decide_how_a_column_is_called_and_it_takes_the_other_spellings(tmp_path: Path) -> None:
    shop = Landing(tmp_path)
    events = [{"id": at, "meta": {"ip": str(at)}} for at in range(99)]
    shop.put("1.json", lines({"ID": 99, "Meta": {"IP": "99"}}, *events))

    shop.run()

    assert names(tmp_path) == ["id", "meta"]
    assert sorted((row["id"], row["meta"]["ip"]) for row in shop.rows()) == [
        (at, str(at)) for at in range(100)
    ]
    assert shop.letters() == []
    assert originals(tmp_path) == {}


def test_two_spellings_in_one_event_are_a_dead_letter_unless_new_fields_are_rescued(tmp_path: Path) -> None:
    shop = Landing(tmp_path)
    shop.put("1.json", lines({"id": 1}, {"id": 2}, {"id": 3, "ID": 3}, {"id": None, "ID": 4}))

    shop.run()

    assert shop.rows() == [{"id": 1}, {"id": 2}, {"id": 4}]
    [letter] = shop.letters()
    assert letter["code"] == "bad_name"
    assert letter["error"] == (
        "ID: is another spelling of id, and the event has both; a table has one column"
    )


def test_of_two_spellings_in_one_event_the_second_is_rescued(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="schema: {id: long, m: 'struct<a: long>'}, evolve: rescue")
    shop.put("1.json", lines({"ID": 1, "id": 2, "m": {"a": 1, "A": 5}}, {"ID": 3}))

    shop.run()

    assert [(row["id"], row["m"], row["_rescued"]) for row in shop.rows("id", "m", "_rescued")] == [
        (2, {"a": 1}, '{"m":{"A":5},"ID":1}'),
        (3, None, None),
    ]


def test_other_spellings_are_columns_too_where_new_fields_are_ignored(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="schema: {id: long, m: 'struct<a: long>'}, evolve: ignore")
    shop.put("1.json", lines({"ID": 1, "x": 1, "M": {"A": 2, "b": 1}}, {"id": 2}))

    shop.run()

    assert shop.rows() == [{"id": 1, "m": {"a": 2}}, {"id": 2, "m": None}]


@pytest.mark.parametrize("old", ["US Gross", "US_Gross", "us gross"])
def test_rename_and_drop_take_the_name_of_the_field_and_the_cleaned_one(tmp_path: Path, old: str) -> None:
    shop = Landing(tmp_path, table=f'rename: {{"{old}": gross}}, drop: ["my_note"]')
    shop.put("1.json", lines({"US Gross": 1, "My Note": "x"}))
    shop.run()
    shop.put("2.json", lines({"US Gross": 2, "My Note": "x"}))

    shop.run()

    assert shop.rows() == [{"gross": 1}, {"gross": 2}]


@pytest.mark.parametrize("old", ["US Gross", "US_Gross"])
def test_a_field_with_a_cleaned_name_may_be_renamed_or_dropped_later(tmp_path: Path, old: str) -> None:
    for option, later in (
        (f"rename: {{{old}: gross}}", {"US_Gross": None, "id": 2, "gross": 2}),
        (f"drop: [{old}]", {"US_Gross": None, "id": 2}),
    ):
        folder = tmp_path / option.partition(":")[0]
        folder.mkdir()
        shop = Landing(folder)
        shop.put("1.json", lines({"US Gross": 1, "id": 1}))
        shop.run()
        shop.set("format: json", option)
        shop.put("2.json", lines({"US Gross": 2, "id": 2}))

        shop.run()

        assert later in shop.rows()
        assert shop.rows("US_Gross") == [1, None]
        assert shop.letters() == []


def test_a_column_keeps_its_field_when_names_are_strict_later(tmp_path: Path) -> None:
    shop = Landing(tmp_path)
    shop.put("1.json", lines({"US Gross": 1}))
    shop.run()
    shop.set("format: json", "names: strict")
    shop.put("2.json", lines({"US Gross": 2}, {"US_Gross": 3}, {"AKA Name": 4}))

    shop.run()
    shop.put("3.json", lines({"US Gross": 5, "US_Gross": 6}))
    shop.run()

    assert sorted(shop.rows("US_Gross"), key=str) == [1, 2, 5, None]
    assert sorted(shop.rows("US_Gross_2"), key=str) == [3, 6, None, None]
    assert [letter["code"] for letter in shop.letters()] == ["bad_name"]


def test_rename_gives_fields_inside_of_columns_another_name(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="rename: {meta.ip: meta.address, items.s k u: items.code}")
    event = {"meta": {"ip": "a", "n": 1}, "items": [{"s k u": 5, "q": 1}]}
    shop.put("1.json", lines(event))
    shop.run()
    shop.put("2.json", lines({**event, "meta": {"IP": "b", "n": 2}}))

    shop.run()

    assert shop.rows() == [
        {"meta": {"address": "a", "n": 1}, "items": [{"code": 5, "q": 1}]},
        {"meta": {"address": "b", "n": 2}, "items": [{"code": 5, "q": 1}]},
    ]


def test_a_nested_field_that_is_renamed_later_leaves_its_old_column(
    tmp_path: Path,
) -> None:
    shop = Landing(tmp_path)
    shop.put("1.json", lines({"meta": {"ip": "a"}}))
    shop.run()
    shop.set("format: json", "rename: {meta.ip: meta.address}")
    shop.put("2.json", lines({"meta": {"ip": "b"}}))

    shop.run()

    assert shop.rows() == [
        {"meta": {"ip": "a", "address": None}},
        {"meta": {"ip": None, "address": "b"}},
    ]


def test_csv_headers_are_cleaned(tmp_path: Path) -> None:
    shop = Landing(tmp_path, "format: {type: csv, header: true}")
    shop.put("1.csv", ",US Gross,Title\n0,5,A\n")
    shop.run()
    shop.put("2.csv", "title,us gross\nB,6\n")

    shop.run()

    assert shop.rows("_", "US_Gross", "Title") == [
        {"_": "0", "US_Gross": "5", "Title": "A"},
        {"_": None, "US_Gross": "6", "Title": "B"},
    ]
    assert shop.letters() == []


def test_parquet_files_with_other_names_feed_the_same_columns(tmp_path: Path) -> None:
    shop = Landing(tmp_path, "format: parquet", "mode: upsert, keys: [Order_Id], sequence_by: [n]")
    one = pa.table({"Order Id": [1, 2], "n": [1, 1], "the items": [[{"unit price": 1}], None]})
    pq.write_table(one, shop.into / "1.parquet")
    shop.run()
    two = pa.table({"order id": [2], "N": [2], "The Items": [[{"Unit Price": 3}]]})
    pq.write_table(two, shop.into / "2.parquet")

    shop.run()

    assert shop.rows() == [
        {"Order_Id": 1, "n": 1, "the_items": [{"unit_price": 1}]},
        {"Order_Id": 2, "n": 2, "the_items": [{"unit_price": 3}]},
    ]
    assert shop.letters() == []


def test_plan_and_the_run_say_once_which_columns_have_another_name(
    tmp_path: Path, lakefeed: Lakefeed
) -> None:
    shop = Landing(tmp_path)
    shop.put("1.json", lines({"US Gross": 1, "meta": {"a b": 1}}))
    text = "columns have other names than their fields: `US Gross` is US_Gross and `meta.a b`"
    told: list[RunEvent] = []

    planned = plan_run(Pipeline.from_file(shop.file)).tables[0]
    _, out, _ = lakefeed("plan", shop.file)
    run_inline(Pipeline.from_file(shop.file), told.append)
    shop.put("2.json", lines({"US Gross": 2}))
    run_inline(Pipeline.from_file(shop.file), told.append)

    assert planned.names == {"US Gross": "US_Gross", "meta.a b": "meta.a_b"}
    assert [one.partition(" ")[0] for one in planned.columns] == ["US_Gross", "meta"]
    assert f"  {text} is meta.a_b" in out.splitlines()
    said = [one.text for one in told if isinstance(one, TableChanged)]
    assert said.count(f"{text} is meta.a_b") == 1


def test_a_replay_uses_the_names_of_the_table_and_gives_new_ones(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="names: strict")
    shop.put("1.json", lines({"id": 1}, {"id": 2, "US Gross": 5}, {"id": 3, "ID": None, "Id": None}))
    shop.run()
    shop.put("2.json", lines({"ID": 4}))
    shop.run()
    assert len(shop.letters()) == 3
    shop.set("format: json", "names: clean")

    replay(Pipeline.from_file(shop.file), DeadLetterFilter())

    assert shop.rows() == [
        {"id": 1, "US_Gross": None},
        {"id": 2, "US_Gross": 5},
        {"id": 3, "US_Gross": None},
        {"id": 4, "US_Gross": None},
    ]
    assert originals(tmp_path) == {"US_Gross": "US Gross"}
    assert shop.letters() == []


def test_tables_of_a_route_name_a_field_alike(tmp_path: Path) -> None:
    shop = Landing(tmp_path)
    shop.file.write_text(
        "name: shop\n"
        "sources: {drops: {type: files, path: in, settle: 1ms, format: json}}\n"
        "tables: {rows: {route: 'rows/{kind}', from: drops}}\n"
    )
    shop.put("1.json", lines({"kind": "a", "US Gross": 1}, {"Kind": "b", "us gross": 2, "m": {"x y": 1}}))
    shop.run()
    shop.put("2.json", lines({"KIND": "a", "US Gross": 3, "m": {"x y": 2, "x_y": 3}}))
    shop.run()

    found = {one: DeltaTable(tmp_path / "rows" / one).to_pyarrow_table().to_pylist() for one in "ab"}
    assert sorted(found["a"], key=str) == [
        {"kind": "a", "US_Gross": 1, "m": None},
        {"kind": "a", "US_Gross": 3, "m": {"x_y": 2, "x_y_2": 3}},
    ]
    assert found["b"] == [{"kind": "b", "US_Gross": 2, "m": {"x_y": 1}}]
    assert shop.letters() == []


def test_samples_of_a_test_land_under_the_cleaned_names(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        "name: shop\n"
        "sources: {clicks: {type: kafka, brokers: 'localhost:1', topics: clicks, format: json}}\n"
        "tables: {clicks: {path: clicks, from: clicks}}\n"
    )

    others = [Sample(json={"a b": 2}), Sample(json={"A B": 3})]

    landed = run_samples(
        tmp_path / "shop.yaml", {"clicks": [Sample(json={"a b": 1}), *others]}, tmp_path / "t"
    )

    assert_rows(landed.path("clicks"), [{"a_b": 1}, {"a_b": 2}, {"a_b": 3}])


def test_a_column_keeps_the_name_of_its_field_when_its_type_is_changed_and_others_are_added(
    tmp_path: Path, lakefeed: Lakefeed
) -> None:
    shop = Landing(tmp_path)
    shop.put("1.json", lines({"US Gross": 1, "m": {"x y": 1}}))
    shop.run()

    code, _, said = lakefeed("table", "replace", tmp_path / "rows", "--column", "US_Gross double", "--yes")
    assert (code, said) == (0, "")
    DeltaTable(tmp_path / "rows").alter.add_columns([Field("own", "long")])
    shop.put("2.json", lines({"US Gross": 2.5, "m": {"x y": 2}}))
    shop.run()

    assert shop.rows("US_Gross") == [1.0, 2.5]
    assert shop.rows("m") == [{"x_y": 1}, {"x_y": 2}]
    assert names(tmp_path) == ["US_Gross", "m", "own"]
    assert shop.letters() == []


def test_a_key_of_an_event_names_the_columns_as_events_do(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        "name: shop\n"
        "sources: {orders: {type: kafka, brokers: 'localhost:1', topics: o, format: json, key: json}}\n"
        "tables: {orders: {path: orders, from: orders, mode: upsert, keys: [Order_Id], sequence_by: [n]}}\n"
    )
    events = [Sample(json={"Order Id": at, "n": 1}) for at in range(3)]
    gone = [Sample(key='{"Order Id": 1}'), Sample(key='{"order id": 2}')]

    landed = run_samples(tmp_path / "shop.yaml", {"orders": [*events, *gone]}, tmp_path / "t")

    assert_rows(landed.path("orders"), [{"Order_Id": 0, "n": 1}])


def test_the_advice_of_a_plan_names_the_column_of_a_field(tmp_path: Path, lakefeed: Lakefeed) -> None:
    shop = Landing(tmp_path)
    events: list[dict[str, Any]] = [{"US Gross": at, "a b": at, "n": at} for at in range(90)]
    for at in range(12):
        events[at][["US Gross", "a b", "n"][at % 3]] = "none"
    shop.put("1.json", lines(*events))

    _, out, _ = lakefeed("plan", shop.file)

    assert "declare `schema: {US_Gross: json, a_b: json, n: json}`" in out
