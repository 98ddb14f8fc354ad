"""Change events of Debezium bring the key, the order and deletions: `mode: upsert` alone is enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.formats.debezium.sequence import sequence
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.testing import Sample, run_samples

UNAVAILABLE = "__debezium_unavailable_value"
WHERE = (
    ("read", "where: big <> 'x'"),
    ("parted", "where: n < 5 AND big <> 'x'"),
    ("entered", "where: n > 0"),
    ("ruled", "expect: {positive: n > 0}"),
    ("dropped", "expect: {positive: {that: n > 0, otherwise: drop}}"),
)
FILE = """\
name: shop
sources:
  orders: {type: kafka, brokers: localhost:9092, topics: [orders], format: debezium}
tables:
  orders: {path: lake/orders, from: orders, mode: upsert}
"""


def change(op: str, lsn: int, row: dict[str, Any], schema: dict[str, Any] | None = None) -> Sample:
    side = "before" if op == "d" else "after"
    event = {"op": op, "ts_ms": 5, "source": {"lsn": lsn}, side: row or None}
    value: Any = event if schema is None else {"schema": schema, "payload": event}
    return Sample(json=value, key=json.dumps({"id": row.get("id")}).encode())


def fields(*named: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"field": name, "type": kind, "optional": True} for name, kind in named]


ROW = {"type": "struct", "optional": True, "fields": fields(("id", "int64"), ("name", "string"))}
CONNECT = {
    "type": "struct",
    "fields": [
        {**ROW, "field": "before"},
        {**ROW, "field": "after"},
        {"type": "struct", "field": "source", "fields": fields(("lsn", "int64"))},
        *fields(("op", "string"), ("ts_ms", "int64")),
    ],
}


@pytest.mark.parametrize("mode", ["upsert", "history"])
def test_a_change_without_a_value_that_no_row_has_is_a_dead_letter(mode: str, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        FILE.replace("mode: upsert", f"mode: {mode}, rename: {{big: large, name: big}}")
        + "flush: {rows: 2}\n"
    )
    events = [
        change("u", 1, {"id": 1, "name": "a", "big": "__debezium_unavailable_value"}),
        change("u", 2, {"id": 2, "name": "a", "big": "two"}),
        change("u", 3, {"id": 1, "name": "b", "big": "one"}),
        change("u", 4, {"id": 1, "name": "c", "big": "__debezium_unavailable_value"}),
        change("u", 5, {"id": 2, "name": "b", "big": "__debezium_unavailable_value"}),
        change("u", 6, {"id": 3, "name": "a", "big": "__debezium_unavailable_value"}),
    ]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    present = [row for row in landed.rows("orders") if row.get("valid_to") is None]
    rows = sorted((row["id"], row["big"], row["large"]) for row in present)
    assert rows == [(1, "c", "one"), (2, "b", "two")]
    letters = landed.dead_letters("orders")
    assert [(one["stage"], one["code"]) for one in letters] == [("write", "unknown_value")] * 2
    assert "the table has no row of its key" in letters[0]["error"]
    assert "REPLICA IDENTITY FULL" in letters[0]["error"]


def test_a_change_without_a_value_is_stale_once_its_row_came_whole(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        "name: shop\nsources: {orders: {type: files, path: in, format: debezium}}\n"
        "tables: {orders: {path: lake/orders, from: orders, mode: upsert, keys: id}}\n"
    )
    pipeline = Pipeline.from_file(tmp_path / "shop.yaml")
    (tmp_path / "in").mkdir()
    partial = change("u", 1, {"id": 1, "name": "a", "big": "__debezium_unavailable_value"})
    (tmp_path / "in" / "1.json").write_text(json.dumps(partial.json_) + "\n")
    run_inline(pipeline)
    early = replay(pipeline, DeadLetterFilter())
    whole = change("u", 2, {"id": 1, "name": "b", "big": "one"})
    (tmp_path / "in" / "2.json").write_text(json.dumps(whole.json_) + "\n")
    run_inline(pipeline)

    late = replay(pipeline, DeadLetterFilter())

    assert [(one.code, one.dead_letters) for one in early[0].again] == [("unknown_value", 1)]
    assert late[0].again == [] and late[0].rows == 1
    rows = DeltaTable(tmp_path / "lake" / "orders").to_pyarrow_table().to_pylist()
    assert [(row["id"], row["name"], row["big"]) for row in rows] == [(1, "b", "one")]
    assert verify(pipeline).sound


def test_a_condition_is_not_decided_by_a_value_that_the_change_does_not_carry(tmp_path: Path) -> None:
    typed = "schema: {id: long, n: int, big: string}"
    lines = [
        f"  {name}: {{path: lake/{name}, from: orders, mode: upsert, {typed}, {more}}}"
        for name, more in WHERE
    ]
    (tmp_path / "shop.yaml").write_text(FILE.split("  orders: {path")[0] + "\n".join(lines) + "\n")
    events = [change("c", at, {"id": at, "n": 1, "big": "old"}) for at in (1, 2, 3, 4)]
    events += [change("u", 10 + at, {"id": at, "n": n, "big": UNAVAILABLE}) for at, n in ((1, 2), (2, 9))]
    events.append(change("d", 13, {"id": 3}))
    events.append(change("u", 14, {"id": 4, "n": -1, "big": "new"}))
    events.append(change("u", 15, {"id": 4, "n": 4, "big": UNAVAILABLE}))

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    rows = {name: sorted((row["id"], row["n"], row["big"]) for row in landed.rows(name)) for name, _ in WHERE}
    letters = sorted((name, one["code"]) for name, _ in WHERE for one in landed.dead_letters(name))
    assert rows == {
        # As before the changes that cannot be judged.
        "read": [(1, 1, "old"), (2, 1, "old"), (4, -1, "new")],
        "parted": [(1, 1, "old"), (4, -1, "new")],
        "entered": [(1, 2, "old"), (2, 9, "old")],
        # Nothing has the value of the change that breaks the rule, so that of before stays.
        "ruled": [(1, 2, "old"), (2, 9, "old"), (4, 4, "old")],
        "dropped": [(1, 2, "old"), (2, 9, "old"), (4, 4, "old")],
    }
    assert letters == [
        ("entered", "unknown_value"),
        *[("parted", "unknown_value")] * 2,
        *[("read", "unknown_value")] * 3,
        ("ruled", "positive"),
    ]


def test_a_function_does_not_get_changes_without_all_values(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(
        "import pyarrow.compute as pc\n"
        "def louder(batch):\n"
        "    at = batch.schema.get_field_index('big')\n"
        "    return batch.set_column(at, 'big', pc.utf8_upper(batch['big']))\n"
    )
    (tmp_path / "shop.yaml").write_text(
        FILE.replace(
            "mode: upsert",
            "mode: upsert, python: functions:louder, schema: {id: long, name: string, big: string}",
        )
    )
    events = [
        change("c", 1, {"id": 1, "name": "a", "big": "one"}),
        change("u", 2, {"id": 1, "name": "b", "big": "__debezium_unavailable_value"}),
    ]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    assert [(row["name"], row["big"]) for row in landed.rows("orders")] == [("a", "ONE")]
    (letter,) = landed.dead_letters("orders")
    assert (letter["stage"], letter["code"]) == ("python", "unknown_value")
    assert "`python: functions:louder` reads big, which the change does not carry" in letter["error"]


@pytest.mark.parametrize("schema", [None, CONNECT])
def test_rows_follow_the_log_of_the_database(schema: dict[str, Any] | None, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(FILE)
    events = [
        change("r", 10, {"id": 9, "name": "emptied"}, schema),
        change("t", 50, {}, schema),
        change("c", 100, {"id": 1, "name": "a"}, schema),
        change("c", 100, {"id": 2, "name": "b"}, schema),
        change("u", 1000, {"id": 1, "name": "c"}, schema),
        change("u", 999, {"id": 1, "name": "late"}, schema),
        change("d", 1001, {"id": 2, "name": None}, schema),
        Sample(key=b'{"id": 2}'),
        change("u", 200, {"id": 2, "name": "back"}, schema),
    ]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    assert [(row["id"], row["name"]) for row in landed.rows("orders")] == [(1, "c")]
    assert landed.dead_letters("orders") == []


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("mode", ["upsert", "history"])
def test_of_changes_at_one_place_in_the_log_the_later_wins(mode: str, rows: int, tmp_path: Path) -> None:
    """Oracle has one SCN for several changes, and some databases have only the time, in milliseconds."""
    text = FILE.replace("mode: upsert", f"mode: {mode}")
    (tmp_path / "shop.yaml").write_text(text + f"flush: {{rows: {rows}}}\n")
    events = [
        change("c", 5, {"id": 1, "name": "a"}),
        change("c", 5, {"id": 2, "name": "a"}),
        change("d", 7, {"id": 1, "name": "a"}),
        change("c", 7, {"id": 1, "name": "b"}),
        change("c", 7, {"id": 2, "name": "b"}),
        change("d", 7, {"id": 2, "name": "b"}),
    ]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    present = [row for row in landed.rows("orders") if row.get("valid_to") is None]
    assert [(row["id"], row["name"]) for row in present] == [(1, "b")]


def test_a_value_that_the_log_does_not_have_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(FILE + "flush: {rows: 1}\n")
    events = [
        change("c", 1, {"id": 1, "name": "a", "big": "text", "tags": ["x"]}),
        change(
            "u",
            2,
            {
                "id": 1,
                "name": "b",
                "big": "__debezium_unavailable_value",
                "tags": ["__debezium_unavailable_value"],
            },
        ),
        change("u", 3, {"id": 2, "name": "c", "big": "__debezium_unavailable_value", "tags": []}),
    ]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    kept = [(row["name"], row["big"], row["tags"]) for row in landed.rows("orders")]
    assert sorted(kept) == [("b", "text", ["x"])]
    assert [one["code"] for one in landed.dead_letters("orders")] == ["unknown_value"]


def test_a_value_that_is_no_text_has_a_placeholder_of_its_own_type(tmp_path: Path) -> None:
    types = "numbers: array<int>, longs: array<long>, map: 'map<string, string>', doc: json, hstore: string"
    (tmp_path / "shop.yaml").write_text(
        FILE.replace("mode: upsert", f"mode: upsert, schema: {{id: long, n: int, {types}}}")
        + "flush: {rows: 1}\n"
    )
    values: dict[str, Any] = {"numbers": [1, 2], "longs": [*range(28)], "map": {"a": "b"}}
    values |= {"doc": {"a": 1}, "hstore": '{"a":"b"}'}
    pair = {UNAVAILABLE: UNAVAILABLE}
    placeholders: dict[str, Any] = {"numbers": list(UNAVAILABLE.encode()), "map": pair}
    placeholders |= {"longs": placeholders["numbers"], "doc": UNAVAILABLE}
    placeholders["hstore"] = json.dumps(pair, separators=(",", ":"))
    events = [
        change("c", 1, {"id": 1, "n": 1, **values}),
        change("u", 2, {"id": 1, "n": 2, **placeholders}),
    ]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    (row,) = landed.rows("orders")
    assert (row["n"], row["numbers"], row["longs"], row["hstore"]) == (2, [1, 2], [*range(28)], '{"a":"b"}')
    assert (dict(row["map"]), json.loads(row["doc"])) == (values["map"], values["doc"])
    assert landed.dead_letters("orders") == []


def test_places_in_the_log_of_every_database_grow_with_their_texts() -> None:
    growing = [
        [{"lsn": 99}, {"lsn": 100}, {"lsn": 10**15}],
        [{"file": "mysql-bin.000009", "pos": 500}, {"file": "mysql-bin.000010", "pos": 4, "row": 0}],
        [{"file": "b.000010", "pos": 4, "row": 0}, {"file": "b.000010", "pos": 4, "row": 1}],
        [{"scn": "999"}, {"scn": "1000"}],
        [{"commit_lsn": "00000027:00000758:0003"}, {"change_lsn": "00000027:00000758:0005"}],
        [{"ts_ms": 999}, {"ts_ms": 1000, "ord": 1}, {"ts_ms": 1000, "ord": 2}],
    ]

    for places in growing:
        texts = [sequence(place, None) for place in places]
        assert texts == sorted(texts, key=str)
        assert len(set(texts)) == len(texts)
    assert sequence(None, None) is None


OPEN_FOR_LONG = {
    "postgres": [
        {"lsn": 20, "sequence": '["18","20"]', "snapshot": "incremental"},
        {"lsn": 10, "sequence": '["25","10"]'},
        {"lsn": 12, "sequence": '["25","12"]'},
        {"lsn": 40, "sequence": '["30","40"]'},
    ],
    "oracle": [
        {"scn": "20"},
        {"scn": "9", "commit_scn": "30"},
        {"scn": "10", "commit_scn": "30"},
        {"scn": "40", "commit_scn": "41"},
    ],
    "sql server": [
        {"commit_lsn": "00000027:00000758:0020"},
        {"commit_lsn": "00000027:00000758:0030", "change_lsn": "00000027:00000758:0010"},
        {"commit_lsn": "00000027:00000758:0030", "change_lsn": "00000027:00000758:0012"},
        {"commit_lsn": "00000027:00000758:0041", "change_lsn": "00000027:00000758:0040"},
    ],
    "informix": [
        {"commit_lsn": "20", "change_lsn": "-1"},
        {"commit_lsn": "30", "change_lsn": "9"},
        {"commit_lsn": "30", "change_lsn": "10"},
        {"commit_lsn": "41", "change_lsn": "40"},
    ],
}


@pytest.mark.parametrize("mode", ["upsert", "history"])
@pytest.mark.parametrize("database", OPEN_FOR_LONG)
def test_changes_of_a_transaction_that_was_open_while_a_snapshot_read_the_row_count(
    database: str, mode: str, tmp_path: Path
) -> None:
    """They have smaller numbers than the row of the snapshot, which did not see them."""
    (tmp_path / "shop.yaml").write_text(FILE.replace("mode: upsert", f"mode: {mode}") + "flush: {rows: 1}\n")
    read, first, second, later = (
        {"op": "u", "ts_ms": 5, "source": place, "after": {"id": 1, "name": f"{number}"}}
        for number, place in enumerate(OPEN_FOR_LONG[database])
    )
    events = [{**read, "op": "r"}, first, second, first, {**later, "after": {"id": 2, "name": "4"}}]
    samples = [Sample(json=one, key=json.dumps({"id": one["after"]["id"]}).encode()) for one in events]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": samples}, tmp_path / "landed")

    present = [row for row in landed.rows("orders") if row.get("valid_to") is None]
    assert sorted((row["id"], row["name"]) for row in present) == [(1, "2"), (2, "4")]
    texts = [sequence(place, None) for place in OPEN_FOR_LONG[database]]
    assert texts == sorted(set(texts), key=str)


def test_sequences_of_earlier_releases_are_older_than_later_changes() -> None:
    """They had the number of the change alone."""
    before = [
        "00000000000000000040",
        "00000027:00000758:0040:00000000000000000001",
        "lsn:00000000000000000040",
    ]
    later = [
        {"lsn": 41, "sequence": '["50","41"]'},
        {"commit_lsn": "00000027:00000758:0050", "change_lsn": "00000027:00000758:0041"},
        {"commit_lsn": "50", "change_lsn": "41"},
    ]

    for stored, place in zip(before, later, strict=True):
        assert str(sequence(place, None)) > stored


def test_history_has_every_state_that_the_log_of_the_database_tells(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(FILE.replace("mode: upsert", "mode: history"))
    events = [
        change("c", 100, {"id": 1, "name": "a"}),
        change("u", 300, {"id": 1, "name": "c"}),
        change("u", 150, {"id": 1, "name": "a"}),
        change("u", 200, {"id": 1, "name": "late"}),
        change("d", 400, {"id": 1, "name": None}),
    ]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    rows = sorted(landed.rows("orders"), key=lambda row: str(row["valid_from"]))
    assert [row["name"] for row in rows] == ["a", "late", "c"]
    ends = [
        (sequence({"lsn": begin}, None), sequence({"lsn": end}, None))
        for begin, end in ((100, 200), (200, 300), (300, 400))
    ]
    assert [(row["valid_from"], row["valid_to"]) for row in rows] == ends


def test_an_empty_text_in_a_brought_key_that_partitions_the_table_is_a_dead_letter(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(FILE.replace("mode: upsert", "mode: upsert, partition_by: [town]"))
    events = [
        Sample(
            json={"op": "c", "ts_ms": 5, "source": {"lsn": lsn}, "after": {"town": town, "v": lsn}},
            key=json.dumps({"town": town}).encode(),
        )
        for lsn, town in enumerate(["Bern", "", "", "Bern"])
    ]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    assert [(row["town"], row["v"]) for row in landed.rows("orders")] == [("Bern", 3)]
    assert [letter["code"] for letter in landed.dead_letters("orders")] == ["null_key"] * 2


@pytest.mark.parametrize("rule", ["rescue", "dead_letter"])
def test_what_debezium_says_of_every_change_is_no_new_column(rule: str, tmp_path: Path) -> None:
    declared = f"mode: upsert, schema: {{id: long, name: string}}, evolve: {rule}"
    (tmp_path / "shop.yaml").write_text(FILE.replace("mode: upsert", declared))
    events = [change("c", 1, {"id": 1, "name": "a"}), change("u", 2, {"id": 2, "name": "b", "more": 1})]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "landed")

    rows = {row["id"]: row for row in landed.rows("orders")}
    first = rows[1]
    assert (first["__op"], first["__deleted"], first["__ts_ms"]) == ("c", False, 5)
    assert first.get("_rescued") is None
    codes = [letter["code"] for letter in landed.dead_letters("orders")]
    assert codes == ([] if rule == "rescue" else ["new_column"])
    if rule == "rescue":
        assert json.loads(rows[2]["_rescued"]) == {"more": 1}
