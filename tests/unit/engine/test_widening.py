"""Inferred columns get wider types when events need them; what is read again becomes rows."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine import inline
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import RunEvent, TableChanged
from lakefeed.errors import StoreUnavailable
from lakefeed.handles.tables import Tables
from lakefeed.handles.widening import widen
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from lakefeed.tables.table import LakeTable, commit_info_of
from support.analyzing import analyze_by_hand
from support.forks import run_and_kill
from support.landing import Landing
from support.ledger import dead_letters

NOON = dt.datetime(2026, 1, 3, 12, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def _sql_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "analyze_here", analyze_by_hand)


def lines(*events: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in events)


def types(folder: Path) -> dict[str, str]:
    return {one.name: str(one.type) for one in pa.schema(DeltaTable(folder).schema().to_arrow())}


def rows(folder: Path, by: str = "id") -> list[dict[str, Any]]:
    found = pa.RecordBatchReader.from_stream(DeltaTable(folder).scan()).read_all().to_pylist()
    return sorted(found, key=lambda row: row[by])


def letters(folder: Path) -> list[dict[str, Any]]:
    path = folder / "shop_dead_letters"
    return dead_letters(path) if path.exists() else []


def kinds(folder: Path) -> list[str | None]:
    return [commit_info_of(one).get("kind") for one in reversed(DeltaTable(folder).history())]


def run(landing: Landing) -> list[str]:
    """Run, and return what became of tables."""
    told: list[RunEvent] = []
    run_inline(Pipeline.from_file(landing.file), told.append)
    return [one.text for one in told if isinstance(one, TableChanged)]


def test_a_fraction_after_whole_numbers_is_a_row_and_the_column_a_double(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("1.json", lines(*({"id": at, "mpg": 10 + at} for at in range(150))))
    landing.run()
    landing.put("2.json", lines({"id": 150, "mpg": 26.5}, {"id": 151, "mpg": 27}))

    told = run(landing)

    assert types(tmp_path / "rows") == {"id": "int64", "mpg": "double"}
    found = rows(tmp_path / "rows")
    assert [row["mpg"] for row in found] == [*map(float, range(10, 160)), 26.5, 27.0]
    assert not letters(tmp_path)
    assert kinds(tmp_path / "rows") == ["create", "rows", "widen", "rows"]
    (text,) = told
    assert text.startswith("column mpg: long -> double; all rows are written again: 1 file, ")
    assert text.endswith(", 150 rows")
    assert verify(Pipeline.from_file(landing.file)).sound


def test_the_rewrite_says_that_it_changes_no_data(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("1.json", lines({"id": 1, "mpg": 10}))
    landing.run()
    landing.put("2.json", lines({"id": 2, "mpg": 1.5}))
    landing.run()

    entry = (tmp_path / "rows/_delta_log/00000000000000000002.json").read_text()

    actions = [json.loads(line) for line in entry.splitlines()]
    files = [one.get("add") or one.get("remove") for one in actions if {"add", "remove"} & one.keys()]
    assert len(files) == 2
    assert not any(file["dataChange"] for file in files)
    (info,) = (one["commitInfo"] for one in actions if "commitInfo" in one)
    assert commit_info_of(info)["columns"] == {"mpg": "double"}
    assert commit_info_of(info)["was"] == {"mpg": "long"}
    stats = json.loads(next(one["add"]["stats"] for one in actions if "add" in one))
    assert stats["numRecords"] == 1
    assert stats["maxValues"] == {"id": 1, "mpg": 10.0}


def test_several_columns_of_many_events_are_one_rewrite(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    first = {"id": 1, "a": 1, "b": 2, "big": 3, "inside": {"n": 1, "deep": [{"x": 1}]}, "list": [1, 2]}
    landing.put("1.json", lines(first))
    landing.run()
    events = [
        {"id": 2, "a": 1.5},
        {"id": 3, "b": 2.5, "big": 12345678901234567890},
        {"id": 4, "inside": {"n": 0.5, "deep": [{"x": 0.25}, {"x": 2}]}},
        {"id": 5, "list": [1, 0.5], "new": "n"},
        {"id": 6, "a": "junk"},
    ]
    landing.put("2.json", lines(*events))

    landing.run()

    assert kinds(tmp_path / "rows").count("widen") == 1
    assert types(tmp_path / "rows")["big"] == "decimal128(38, 0)"
    found = rows(tmp_path / "rows")
    assert [row["a"] for row in found] == [1.0, 1.5, None, None, None]
    assert found[0]["inside"] == {"n": 1.0, "deep": [{"x": 1.0}]}
    assert found[2]["big"] == Decimal(12345678901234567890)
    assert found[3]["inside"] == {"n": 0.5, "deep": [{"x": 0.25}, {"x": 2.0}]}
    assert found[4]["list"] == [1.0, 0.5]
    assert found[4]["new"] == "n"
    (letter,) = letters(tmp_path)
    assert letter["error"] == 'a: expected double, got "junk"'


def test_columns_with_other_names_than_their_fields_widen_too(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table="rename: {old: new}")
    landing.put("1.json", lines({"id": 1, "US Gross": 1, "old": 1, "in side": [{"a b": 1, "c": "x"}]}))
    landing.run()
    landing.put("2.json", lines({"id": 2, "us gross": 1.5}, {"id": 3, "old": 2.5, "in side": [{"a b": 0.5}]}))

    landing.run()

    first, second, third = rows(tmp_path / "rows")
    assert first == {"id": 1, "US_Gross": 1.0, "new": 1.0, "in_side": [{"a_b": 1.0, "c": "x"}]}
    assert (second["US_Gross"], third["new"], third["in_side"]) == (1.5, 2.5, [{"a_b": 0.5, "c": None}])
    landing.put("3.json", lines({"id": 4, "in side": [{"A B": 7}]}))
    landing.run()
    assert rows(tmp_path / "rows")[3]["in_side"] == [{"a_b": 7.0, "c": None}]
    assert not letters(tmp_path)


def test_an_event_that_stays_a_dead_letter_widens_nothing(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("1.json", lines({"id": 1, "a": 1, "b": "x"}))
    landing.run()
    landing.put("2.json", lines({"id": 2, "a": 1.5, "b": 7}, {"id": 3, "a": "no"}))

    landing.run()

    assert types(tmp_path / "rows") == {"id": "int64", "a": "int64", "b": "string"}
    assert len(letters(tmp_path)) == 2
    assert "widen" not in kinds(tmp_path / "rows")


def test_numbers_that_a_double_would_round_stay_as_they_are(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("1.json", lines({"id": 2**53 + 1, "a": 1}, {"id": 7, "a": 2}))
    landing.run()
    landing.put("2.json", lines({"id": 1.5, "a": 3}, {"id": 8, "a": 0.5}))

    told = run(landing)

    assert types(tmp_path / "rows") == {"id": "int64", "a": "double"}
    assert [row["id"] for row in rows(tmp_path / "rows")] == [7, 8, 2**53 + 1]
    assert told[0] == (
        "column id is not widened: the table has 9007199254740993, which a double does not hold exactly; "
        "values that do not fit are dead letters"
    )
    (letter,) = letters(tmp_path)
    assert letter["error"] == (
        "id: expected long, got 1.5; id is not widened to double: the table has 9007199254740993, which a "
        "double does not hold exactly"
    )


@pytest.mark.parametrize(("field", "table"), [("n", "evolve: add"), ("k", "rename: {k: n}")])
def test_number_that_the_double_would_round_is_a_dead_letter_in_that_batch_and_later(
    tmp_path: Path, field: str, table: str
) -> None:
    landing = Landing(tmp_path, table=table)
    landing.put("1.json", lines({"id": 1, field: 1}))
    landing.run()
    landing.put("2.json", lines({"id": 2, field: 2**53 + 1}, {"id": 3, field: 26.5}))
    landing.run()
    landing.put("3.json", lines({"id": 4, field: 2**53 + 3}, {"id": 5, field: 2**53 + 2}))
    landing.run()

    assert rows(tmp_path / "rows") == [
        {"id": 1, "n": 1.0},
        {"id": 3, "n": 26.5},
        {"id": 5, "n": 2.0**53 + 2},
    ]
    assert [one["error"] for one in letters(tmp_path)] == [
        f"{field}: expected double, got {number}, which it cannot hold exactly"
        for number in (2**53 + 1, 2**53 + 3)
    ]
    assert verify(Pipeline.from_file(landing.file), deep=True).sound


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("partition_by: [k]", "`partition_by` names it"),
        ("mode: upsert, keys: [k], sequence_by: id", "`keys` names it"),
        ("mode: upsert, keys: [id], sequence_by: k", "`sequence_by` names it"),
    ],
)
def test_columns_that_options_name_keep_their_type(tmp_path: Path, table: str, reason: str) -> None:
    landing = Landing(tmp_path, table=table)
    landing.put("1.json", lines({"id": 1, "k": 1, "v": 1}))
    landing.run()
    landing.put("2.json", lines({"id": 2, "k": 2.5, "v": 2}, {"id": 3, "k": 3, "v": 3.5}))

    landing.run()

    assert types(tmp_path / "rows")["k"] == "int64"
    assert types(tmp_path / "rows")["v"] == "double"
    assert [row["id"] for row in rows(tmp_path / "rows")] == [1, 3]
    (letter,) = letters(tmp_path)
    assert letter["error"] == f"k: expected long, got 2.5; k is not widened to double: {reason}"


def test_a_route_keeps_the_types_of_its_tables(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.file.write_text(landing.file.read_text().replace("path: rows", "route: 'rows/{kind}'"))
    landing.put("1.json", lines({"id": 1, "kind": "a", "v": 1}, {"id": 2, "kind": "b", "v": 1}))
    landing.run()
    landing.put("2.json", lines({"id": 3, "kind": "a", "v": 2.5}, {"id": 4, "kind": "b", "v": 2}))

    landing.run()

    (letter,) = letters(tmp_path / "rows")
    assert letter["error"] == (
        "v: expected long, got 2.5; v is not widened to double: the tables of a `route` have one type for it"
    )
    assert [row["id"] for row in rows(tmp_path / "rows/b")] == [2, 4]


def test_declared_columns_and_other_rules_make_dead_letters(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table="schema: {a: long}")
    landing.put("1.json", lines({"id": 1, "a": 1}))
    landing.run()
    landing.put("2.json", lines({"id": 2, "a": 1.5}, {"id": 2.5, "a": 2}))
    landing.run()

    assert types(tmp_path / "rows") == {"a": "int64", "id": "double"}
    (letter,) = letters(tmp_path)
    assert letter["error"] == "a: expected long, got 1.5"

    landing.set("format: json", "schema: {a: long}, evolve: {type_change: dead_letter}")
    landing.put("3.json", lines({"id": 3, "a": 3, "new": 1}))
    landing.run()
    landing.put("4.json", lines({"id": 4, "a": 4, "new": 1.5}))
    landing.run()

    assert types(tmp_path / "rows")["new"] == "int64"
    assert len(letters(tmp_path)) == 2


def test_two_sources_of_one_table_both_widen_it(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    (tmp_path / "more").mkdir()
    text = landing.file.read_text().replace(
        "sources: {", "sources: {more: {type: files, path: more, format: json}, "
    )
    landing.file.write_text(text.replace("from: drops", "from: [drops, more]"))
    (tmp_path / "more/1.json").write_text(lines({"id": 1, "a": 1, "b": 1}))
    landing.put("1.json", lines({"id": 2, "a": 1, "b": 1}))
    landing.run()
    (tmp_path / "more/2.json").write_text(lines({"id": 3, "a": 1.5, "b": 1}))
    landing.put("2.json", lines({"id": 4, "a": 2.5, "b": 0.5}))

    landing.run()

    found = [(row["a"], row["b"]) for row in rows(tmp_path / "rows")]
    assert found == [(1.0, 1.0), (1.0, 1.0), (1.5, 1.0), (2.5, 0.5)]
    assert not letters(tmp_path)
    assert verify(Pipeline.from_file(landing.file)).sound


@pytest.mark.parametrize("updates", ["copy_on_write", "merge_on_read"])
def test_a_keyed_table_keeps_its_rows_and_takes_the_next_changes(tmp_path: Path, updates: str) -> None:
    landing = Landing(
        tmp_path,
        table=f"mode: upsert, keys: [id], sequence_by: at, updates: {updates}, "
        "delete_when: 'gone > 0', properties: {delta.enableChangeDataFeed: 'true'}",
    )
    landing.put("1.json", lines(*({"id": at, "at": 1, "v": at, "gone": 0} for at in range(6))))
    landing.run()
    landing.put(
        "2.json", lines({"id": 0, "at": 2, "v": 10, "gone": 0}, {"id": 1, "at": 2, "v": 1, "gone": 1})
    )
    landing.run()
    landing.put(
        "3.json", lines({"id": 2, "at": 3, "v": 2.5, "gone": 0}, {"id": 1, "at": 1, "v": 9.5, "gone": 0})
    )

    landing.run()

    assert {row["id"]: row["v"] for row in rows(tmp_path / "rows")} == {
        0: 10.0,
        2: 2.5,
        3: 3.0,
        4: 4.0,
        5: 5.0,
    }
    assert not letters(tmp_path)
    assert "widen" in kinds(tmp_path / "rows")
    landing.put("4.json", lines({"id": 0, "at": 4, "v": 0.5, "gone": 0}))
    landing.run()
    assert rows(tmp_path / "rows")[0]["v"] == 0.5
    assert verify(Pipeline.from_file(landing.file), deep=True).sound


def test_a_history_keeps_its_intervals(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table="mode: history, keys: [id], sequence_by: at")
    landing.put("1.json", lines({"id": 1, "at": 1, "v": 1}, {"id": 1, "at": 2, "v": 2}))
    landing.run()
    landing.put("2.json", lines({"id": 1, "at": 3, "v": 2.5}))

    landing.run()

    found = rows(tmp_path / "rows", "valid_from")
    assert [(row["v"], row["valid_from"], row["valid_to"]) for row in found] == [
        (1.0, 1, 2),
        (2.0, 2, 3),
        (2.5, 3, None),
    ]
    assert verify(Pipeline.from_file(landing.file)).sound


MEDALLION = """\
name: shop
sources: {{drops: {{type: files, path: in, settle: 1ms, format: json}}}}
tables:
  bronze: {{path: bronze, from: drops}}
  silver: {{path: silver, from: bronze{silver}}}
  gold: {{path: gold, from: silver}}
"""


@pytest.mark.parametrize(
    ("silver", "columns"),
    [
        ("", {"id": "int64", "mpg": "double"}),
        (", select: [id, mpg AS miles, mpg]", {"id": "int64", "miles": "double", "mpg": "double"}),
        (", select: [id], where: mpg > 1", {"id": "int64"}),
        (", mode: upsert, keys: [id], sequence_by: id", {"id": "int64", "mpg": "double"}),
    ],
)
def test_tables_further_on_get_the_new_type_and_read_nothing_again(
    tmp_path: Path, silver: str, columns: dict[str, str]
) -> None:
    landing = Landing(tmp_path)
    landing.file.write_text(MEDALLION.format(silver=silver))
    landing.put("1.json", lines({"id": 1, "mpg": 10}, {"id": 2, "mpg": 11}))
    landing.run()
    landing.put("2.json", lines({"id": 3, "mpg": 12.5}, {"id": 4, "mpg": 13}))

    landing.run()
    landing.put("3.json", lines({"id": 5, "mpg": 14.5}))
    landing.run()

    for name in ("bronze", "silver", "gold"):
        assert [row["id"] for row in rows(tmp_path / name)] == [1, 2, 3, 4, 5]
    assert types(tmp_path / "silver") == columns
    assert types(tmp_path / "gold").items() >= columns.items()
    assert types(tmp_path / "bronze")["mpg"] == "double"
    assert not letters(tmp_path)
    assert verify(Pipeline.from_file(landing.file)).sound


def test_declared_column_further_on_takes_what_fits_of_the_wider_one(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    silver = ", schema: {id: long, mpg: int, day: date}, evolve: ignore"
    landing.file.write_text(MEDALLION.format(silver=silver))
    landing.put("1.json", lines({"id": 1, "mpg": 10}))
    landing.run()
    landing.put("2.json", lines({"id": 2, "mpg": 12.5}, {"id": 3, "mpg": 13}))

    landing.run()

    assert types(tmp_path / "bronze")["mpg"] == "double"
    assert types(tmp_path / "silver")["mpg"] == "int32"
    assert [(row["id"], row["mpg"]) for row in rows(tmp_path / "silver")] == [(1, 10), (3, 13)]
    (letter,) = letters(tmp_path)
    assert letter["error"] == "mpg: expected int, got 12.5"
    assert verify(Pipeline.from_file(landing.file)).sound


def test_dead_letter_of_a_typed_row_takes_its_whole_numbers_and_midnights_when_it_is_replayed(
    tmp_path: Path,
) -> None:
    midnight = dt.datetime(2026, 1, 3, tzinfo=dt.UTC)
    columns = [
        ("n", pa.float64()),
        ("d", pa.decimal128(38, 4)),
        ("day", pa.timestamp("us", "UTC")),
        ("x", pa.int64()),
    ]
    row = {"n": [13.0], "d": [Decimal(2**63 - 1)], "day": [midnight], "x": [300]}
    write_deltalake(tmp_path / "typed", pa.table(row, pa.schema(columns)))
    file = tmp_path / "shop.yaml"
    text = """\
name: shop
sources: {typed: {type: delta, path: typed}}
tables: {rows: {path: rows, from: typed, schema: {n: long, d: long, day: date}, EXPECT, evolve: ignore}}
"""
    file.write_text(text.replace("EXPECT", "expect: {small: n < 10}"))
    run_inline(Pipeline.from_file(file))
    assert [one["code"] for one in letters(tmp_path)] == ["small"]
    file.write_text(text.replace("EXPECT, ", ""))

    (done,) = replay(Pipeline.from_file(file), DeadLetterFilter())

    assert done.rows == 1
    assert rows(tmp_path / "rows", "n") == [{"n": 13, "d": 2**63 - 1, "day": midnight.date()}]


@pytest.mark.parametrize(
    ("silver", "kept"),
    [
        ("mode: upsert, keys: [id]", [(1, 10.0), (2, 12.5), (3, 13.0)]),
        (
            "mode: history, keys: [id]",
            [(1, 10.0), *[(2, 11.0)] * 2, *[(2, 12.5)] * 2, *[(3, 13.0)] * 2],
        ),
    ],
)
def test_rewind_to_before_the_widening_reaches_the_tables_further_on(
    tmp_path: Path, silver: str, kept: list[tuple[int, float]]
) -> None:
    landing = Landing(tmp_path)
    landing.file.write_text(
        "name: shop\n"
        "sources: {drops: {type: files, path: in, settle: 1ms, format: json}}\n"
        "tables:\n"
        "  bronze: {path: bronze, from: drops, mode: upsert, keys: [id], sequence_by: id}\n"
        f"  silver: {{path: silver, from: bronze, {silver}}}\n"
    )
    landing.put("1.json", lines({"id": 1, "mpg": 10}, {"id": 2, "mpg": 11}))
    landing.run()
    version = DeltaTable(tmp_path / "bronze").version()
    landing.put("2.json", lines({"id": 2, "mpg": 12.5}, {"id": 3, "mpg": 13}))
    landing.run()
    assert types(tmp_path / "silver")["mpg"] == types(tmp_path / "bronze")["mpg"] == "double"
    pipeline = Pipeline.from_file(landing.file)
    rewind(pipeline, "bronze", to_version=version)

    landing.run()

    assert types(tmp_path / "silver")["mpg"] == "double"
    assert sorted((row["id"], row["mpg"]) for row in rows(tmp_path / "silver")) == kept
    assert not letters(tmp_path)
    assert verify(Pipeline.from_file(landing.file)).sound


def test_select_that_cannot_follow_leaves_dead_letters_that_say_why(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.file.write_text(
        MEDALLION.format(silver=", select: [mpg AS k, id], mode: upsert, keys: [k], sequence_by: id")
    )
    landing.put("1.json", lines({"id": 1, "mpg": 10}))
    landing.run()
    landing.put("2.json", lines({"id": 3, "mpg": 12.5}))

    landing.run()

    assert types(tmp_path / "silver") == {"k": "int64", "id": "int64"}
    (letter,) = letters(tmp_path)
    assert letter["table"] == "silver"
    assert letter["error"] == (
        "mpg: expected long, got 12.5; mpg is not widened to double: `select` would make column k "
        "double of it, and `keys` names it; the table has long"
    )


def test_plan_says_what_is_written_again_and_changes_nothing(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("1.json", lines({"id": 1, "mpg": 10}))
    landing.run()
    landing.put("2.json", lines({"id": 2, "mpg": 1.5}, {"id": 3, "mpg": "none"}))

    (plan,) = plan_run(Pipeline.from_file(landing.file)).tables

    (text,) = plan.widened
    assert text.startswith("column mpg: long -> double; all rows are written again: 1 file, ")
    assert plan.action == "alter"
    assert plan.sampled_dead_letters == {"wrong_type": 1}
    assert plan.sampled_errors == {"wrong_type": 'mpg: expected double, got "none"'}
    assert types(tmp_path / "rows")["mpg"] == "int64"


def test_plan_says_that_a_value_of_another_type_would_stop_the_table(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table="evolve: {type_change: fail}")
    landing.put("1.json", lines({"id": 1, "mpg": 10}))
    landing.run()
    landing.put("2.json", lines({"id": 2, "mpg": 1.5}))

    (plan,) = plan_run(Pipeline.from_file(landing.file)).tables

    assert plan.refused == (
        "table rows: an event does not fit and `evolve.type_change` is fail: mpg: expected long, got 1.5.\n"
        "Correct `schema` or the producer, or choose another rule, then start again."
    )


def test_a_replay_widens_as_a_run_does(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table="evolve: {type_change: dead_letter}")
    landing.put("1.json", lines({"id": 1, "mpg": 10}))
    landing.run()
    landing.put("2.json", lines({"id": 2, "mpg": 1.5}))
    landing.run()
    assert len(letters(tmp_path)) == 1
    landing.set("format: json")
    pipeline = Pipeline.from_file(landing.file)

    (foreseen,) = replay(pipeline, DeadLetterFilter(), dry_run=True)
    assert types(tmp_path / "rows")["mpg"] == "int64"
    (done,) = replay(pipeline, DeadLetterFilter())

    assert foreseen.rows == done.rows == 1
    assert foreseen.widened == done.widened
    assert [row["mpg"] for row in rows(tmp_path / "rows")] == [10.0, 1.5]
    assert not letters(tmp_path)
    assert verify(pipeline).sound


def test_rows_that_another_writer_appends_meanwhile_are_written_again_as_well(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("1.json", lines({"id": 1, "mpg": 10}))
    landing.run()
    handle = Tables(Pipeline.from_file(landing.file)).handles["rows"]
    handle.look()
    calls: list[int] = []

    def written() -> None:
        calls.append(len(calls))
        if len(calls) < 3:
            more = pa.table({"id": [1 + len(calls)], "mpg": [20]})
            write_deltalake(str(tmp_path / "rows"), more, mode="append")

    widen(handle, pa.schema({"mpg": pa.float64()}), {"pipeline": "shop"}, str, written)

    assert rows(tmp_path / "rows") == [{"id": 1, "mpg": 10.0}, {"id": 2, "mpg": 20.0}, {"id": 3, "mpg": 20.0}]
    assert types(tmp_path / "rows")["mpg"] == "double"
    there = {one.name for one in (tmp_path / "rows").glob("*.parquet")}
    live = {Path(uri).name for uri in DeltaTable(tmp_path / "rows").file_uris()}
    assert len(there) == 2 * len(live)


def test_a_value_that_another_writer_brings_meanwhile_keeps_the_column_as_it_is(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("1.json", lines({"id": 1, "mpg": 10}))
    landing.run()
    handle = Tables(Pipeline.from_file(landing.file)).handles["rows"]
    handle.look()
    told: list[str] = []

    def written() -> None:
        if DeltaTable(tmp_path / "rows").version() == 1:
            write_deltalake(str(tmp_path / "rows"), pa.table({"id": [2], "mpg": [2**60 + 1]}), mode="append")

    widen(handle, pa.schema({"mpg": pa.float64()}), {"pipeline": "shop"}, told.append, written)

    assert types(tmp_path / "rows")["mpg"] == "int64"
    assert told[-1].startswith("column mpg is not widened: the table has 1152921504606846977")
    assert len([*(tmp_path / "rows").glob("*.parquet")]) == 2


def test_two_instances_that_widen_one_column_write_its_rows_once(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("1.json", lines({"id": 1, "mpg": 10}))
    landing.run()
    one, other = (Tables(Pipeline.from_file(landing.file)).handles["rows"] for _ in range(2))
    one.look()
    other.look()
    needed = pa.schema({"mpg": pa.float64()})

    widen(one, needed, {"pipeline": "shop"}, str, lambda: widen(other, needed, {"pipeline": "shop"}, str))

    assert rows(tmp_path / "rows") == [{"id": 1, "mpg": 10.0}]
    assert kinds(tmp_path / "rows") == ["create", "rows", "widen"]
    assert len([*(tmp_path / "rows").glob("*.parquet")]) == 2


def test_rows_stay_when_the_store_goes_away_behind_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(tmp_path)
    landing.put("1.json", lines({"id": 1, "mpg": 10}))
    landing.run()
    handle = Tables(Pipeline.from_file(landing.file)).handles["rows"]
    handle.look()
    put = LakeTable.put

    def away(table: LakeTable, *, grounded: bool = False) -> dict[int, dict[str, Any]]:
        raise StoreUnavailable("the store is away")

    def put_and_lose_the_store(table: LakeTable, actions: Iterable[Any]) -> FileExistsError | None:
        refused = put(table, actions)
        monkeypatch.setattr(LakeTable, "refresh", away)
        return refused

    monkeypatch.setattr(LakeTable, "put", put_and_lose_the_store)
    with pytest.raises(StoreUnavailable):
        widen(handle, pa.schema({"mpg": pa.float64()}), {"pipeline": "shop"}, str)

    assert rows(tmp_path / "rows") == [{"id": 1, "mpg": 10.0}]


def test_rows_stay_when_an_entry_arrives_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = Landing(tmp_path)
    landing.put("1.json", lines({"id": 1, "mpg": 10}))
    landing.run()
    handle = Tables(Pipeline.from_file(landing.file)).handles["rows"]
    handle.look()
    put, first = LakeTable.put, list[Any]()

    def put_late(table: LakeTable, actions: Iterable[Any]) -> FileExistsError | None:
        if not first:
            first.extend(actions)
            raise StoreUnavailable("no answer")
        put(table, first)
        return put(table, actions)

    monkeypatch.setattr(LakeTable, "put", put_late)
    widen(handle, pa.schema({"mpg": pa.float64()}), {"pipeline": "shop"}, str)

    assert rows(tmp_path / "rows") == [{"id": 1, "mpg": 10.0}]
    assert kinds(tmp_path / "rows") == ["create", "rows", "widen"]


PARQUET = [
    (pa.int32(), 1, pa.int64(), 2**40, "int64"),
    (pa.int64(), 1, pa.float64(), 1.5, "double"),
    (pa.float32(), 0.5, pa.float64(), 0.1, "double"),
    (pa.date32(), dt.date(2026, 1, 2), pa.timestamp("us", "UTC"), NOON, "timestamp[us, tz=UTC]"),
    (pa.decimal128(5, 2), Decimal("1.50"), pa.decimal128(9, 4), Decimal("12345.6789"), "decimal128(9, 4)"),
    (pa.int64(), 5, pa.decimal128(9, 2), Decimal("1.25"), "decimal128(21, 2)"),
]


@pytest.mark.parametrize(("have", "first", "new", "then", "kind"), PARQUET)
def test_columns_of_files_with_types_of_their_own(
    tmp_path: Path, have: pa.DataType, first: object, new: pa.DataType, then: object, kind: str
) -> None:
    landing = Landing(tmp_path, options="format: parquet")
    pq.write_table(pa.table({"id": [1], "v": pa.array([first], have)}), landing.into / "1.parquet")
    landing.run()
    pq.write_table(pa.table({"id": [2], "v": pa.array([then], new)}), landing.into / "2.parquet")

    landing.run()

    assert not letters(tmp_path)
    assert types(tmp_path / "rows")["v"] == kind
    assert rows(tmp_path / "rows")[1]["v"] == then


def test_decimals_that_no_type_holds_together_are_dead_letters(tmp_path: Path) -> None:
    landing = Landing(tmp_path, options="format: parquet")
    decimals = {
        "1": (pa.decimal128(20, 2), "1.50"),
        "2": (pa.decimal128(30, 2), "1234567890123456789012345678.12"),
        "3": (pa.decimal128(30, 15), "12345678.123456789012345"),
    }
    for name, (kind, text) in decimals.items():
        values = pa.array([Decimal(text)], kind)
        pq.write_table(pa.table({"id": [int(name)], "v": values}), landing.into / f"{name}.parquet")
        if name == "1":
            landing.run()

    landing.run()

    assert types(tmp_path / "rows")["v"] == "decimal128(20, 2)"
    assert [one["error"].partition("; ")[2] for one in letters(tmp_path)] == [
        f"v is not widened to {kind}: no type holds all of its values in one batch (decimal(20,2) in the "
        "table)"
        for kind in ("decimal(30,2)", "decimal(33,15)")
    ]


def test_a_producer_with_another_avro_schema_widens_the_column(tmp_path: Path) -> None:
    landing = Landing(tmp_path, options="format: {type: avro, encoding: container}")
    for number, kind, value in ((1, "int", 7), (2, "long", 2**40), (3, "double", 0.5)):
        fields = [{"name": "id", "type": "int"}, {"name": "v", "type": kind}]
        schema = {"type": "record", "name": "Car", "fields": fields}
        with (landing.into / f"{number}.avro").open("wb") as file:
            fastavro.writer(file, schema, [{"id": number, "v": value}])
        landing.run()

    assert [row["v"] for row in rows(tmp_path / "rows")] == [7.0, float(2**40), 0.5]
    assert kinds(tmp_path / "rows").count("widen") == 2
    assert not letters(tmp_path)


@pytest.mark.parametrize(
    "point",
    [
        "widening_started:1",
        "widening_written:1",
        "widening_committed:1",
        "files_written:2",
        "table_committed:2",
    ],
)
def test_a_process_that_is_killed_on_the_way_loses_and_repeats_nothing(tmp_path: Path, point: str) -> None:
    landing = Landing(tmp_path)
    landing.file.write_text(MEDALLION.format(silver=""))
    landing.put("1.json", lines(*({"id": at, "mpg": at} for at in range(5))))
    landing.run()
    landing.put("2.json", lines({"id": 5, "mpg": 5.5}))

    code = run_and_kill(landing.file, point)
    landing.run()

    assert code == -9
    for name in ("bronze", "silver", "gold"):
        assert [row["mpg"] for row in rows(tmp_path / name)] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.5]
        assert kinds(tmp_path / name).count("widen") == 1
    assert not letters(tmp_path)
    assert verify(Pipeline.from_file(landing.file)).sound
