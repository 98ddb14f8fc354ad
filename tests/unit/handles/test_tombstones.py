"""Events without a payload delete by their key: the tombstones of a compacted topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.errors import PipelineFileError
from lakefeed.tables.table import commit_info_of
from lakefeed.testing import Landed, Sample, run_samples

FILE = """\
name: shop
sources:
  customers: {{type: kafka, brokers: "localhost:9", topics: [customers], format: {format}, key: {key}}}
tables:
  customers:
    path: lake/customers
    from: customers
    mode: upsert
    {more}
flush: {{rows: {rows}}}
"""


def land(
    folder: Path,
    *events: Sample,
    more: str = "keys: id",
    key: str = "json",
    format: str = "json",
    rows: int = 2,
) -> Landed:
    (folder / "shop.yaml").write_text(FILE.format(more=more, key=key, format=format, rows=rows))
    return run_samples(Pipeline.from_file(folder / "shop.yaml"), {"customers": list(events)}, folder / "run")


def event(key: Any = None, **row: Any) -> Sample:
    return Sample(json=row, key=None if key is None else json.dumps(key).encode())


def gone(key: bytes | None) -> Sample:
    return Sample(key=key)


def ids(landed: Landed) -> list[Any]:
    return sorted(row["id"] for row in landed.rows("customers"))


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_a_tombstone_deletes_the_row_of_its_key_and_a_later_event_brings_it_back(
    rows: int, tmp_path: Path
) -> None:
    landed = land(
        tmp_path,
        event(id=1, name="a"),
        event(id=2, name="b"),
        gone(b'{"id": 1}'),
        event(id=3, name="c"),
        gone(b'{"id": 3, "shard": 7}'),
        event(id=3, name="again"),
        gone(b'{"id": 99}'),
        rows=rows,
    )

    found = sorted((row["id"], row["name"]) for row in landed.rows("customers"))
    assert found == [(2, "b"), (3, "again")]
    assert landed.dead_letters("customers") == []


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_a_tombstone_has_the_sequence_of_what_it_deletes(rows: int, tmp_path: Path) -> None:
    landed = land(
        tmp_path,
        event(id=1, at=10, name="a"),
        event(id=2, at=20, name="b"),
        event(id=1, at=5, name="late"),
        gone(b'{"id": 1}'),
        event(id=1, at=9, name="older than what was deleted"),
        gone(b'{"id": 2}'),
        event(id=2, at=21, name="newer"),
        rows=rows,
        more="keys: id\n    sequence_by: at",
    )

    assert [(row["id"], row["name"]) for row in landed.rows("customers")] == [(2, "newer")]


KEYS = [
    ("text", "long", b"1", 1),
    ("text", "string", b"a b", "a b"),
    ("text", "date", b"2026-11-17", "2026-11-17"),
    ("int64", "int", (1).to_bytes(8, "big"), 1),
    ("json", "long", b" 1", 1),
    ("json", "string", b'"x"', "x"),
    ("json", "long", b'{"schema": {"type": "struct"}, "payload": {"id": 1}}', 1),
]


@pytest.mark.parametrize(("key", "kind", "sent", "value"), KEYS)
def test_a_key_may_be_one_value(key: str, kind: str, sent: bytes, value: Any, tmp_path: Path) -> None:
    more = f"keys: key_of_it\n    rename: {{id: key_of_it}}\n    schema: {{key_of_it: {kind}, name: string}}"

    landed = land(tmp_path, event(id=value, name="a"), gone(sent), more=more, key=key, rows=1)

    assert landed.rows("customers") == []
    assert landed.dead_letters("customers") == []


def test_a_key_that_is_none_is_a_dead_letter(tmp_path: Path) -> None:
    more = "keys: id\n    schema: {id: long, name: string}"

    keys = [None, b'{"id": "x"}', b"{", b'{"name": "x"}', b'1, "name": "x"']
    landed = land(tmp_path, *map(gone, keys), more=more)

    found = sorted(landed.dead_letters("customers"), key=lambda one: one["offset"])
    letters = [(one["code"], one["error"]) for one in found]
    assert letters[0] == ("null_payload", "the event has neither a payload nor a key")
    assert letters[1] == ("wrong_type", 'key: id: expected long, got "x"')
    assert letters[2][0] == "bad_json" and letters[2][1].startswith("key: ")
    assert letters[3] == ("null_key", "id: expected long not null, got null")
    assert letters[4][0] == "bad_json"


@pytest.mark.parametrize("rows", [1, 100])
def test_a_tombstone_of_debezium_deletes_where_compaction_took_the_change(rows: int, tmp_path: Path) -> None:
    def change(op: str, lsn: int, number: int) -> Sample:
        side = "before" if op == "d" else "after"
        return event({"id": number}, op=op, source={"lsn": lsn}, **{side: {"id": number, "name": op}})

    landed = land(
        tmp_path,
        change("c", 10, 1),
        change("c", 11, 2),
        gone(b'{"id": 1}'),
        change("u", 9, 1),
        change("d", 12, 2),
        gone(b'{"id": 2}'),
        change("c", 13, 3),
        format="debezium",
        more="",
        rows=rows,
    )

    assert ids(landed) == [3]
    assert landed.dead_letters("customers") == []


def test_a_key_in_avro_deletes_and_names_the_columns_of_the_key(tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "site", "type": "string"}]
    (tmp_path / "key.avsc").write_text(json.dumps({"type": "record", "name": "Key", "fields": fields}))
    one, other = b"\x02\x04de", b"\x04\x04de"

    def change(key: bytes, number: int) -> Sample:
        row = {"op": "c", "source": {"lsn": 1}, "after": {"id": number, "site": "de", "name": "a"}}
        return Sample(json=row, key=key)

    landed = land(
        tmp_path,
        change(one, 1),
        change(other, 2),
        gone(one),
        format="debezium",
        key="{type: avro, schema_file: key.avsc}",
        more="",
    )

    assert ids(landed) == [2]
    newest = DeltaTable(landed.path("customers")).history(1)[0]
    assert commit_info_of(newest)["keys"] == ["id", "site"]


def test_history_ends_where_the_tombstone_says_when(tmp_path: Path) -> None:
    more = "keys: id\n    metadata: [_offset]\n    sequence_by: _offset"
    (tmp_path / "shop.yaml").write_text(
        FILE.format(more=more, key="json", format="json", rows=1).replace("upsert", "history")
    )
    events = [event(id=1, name="a"), event(id=1, name="b"), gone(b'{"id": 1}'), event(id=1, name="c")]

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"customers": events}, tmp_path / "run")

    found = [(row["name"], row["valid_from"], row["valid_to"]) for row in landed.rows("customers")]
    assert sorted(found) == [("a", 0, 1), ("b", 1, 2), ("c", 3, None)]


WRONG = {
    "keys: id": ("bytes", "sources.customers.key: expected json, avro, protobuf, text or int64, got bytes"),
    "keys: [id, site]": ("text", "tables.customers.keys: `key: text` of source 'customers' is one value"),
    "keys: id\n    sequence_by: at\n    mode: history": ("json", "has no 'at' that says when. Order by what"),
    "mode: append": ("json", "sources.customers.key: has an effect only for tables with `mode: upsert`"),
}


@pytest.mark.parametrize("more", WRONG)
def test_a_key_that_does_not_fit_its_tables_is_told(more: str, tmp_path: Path) -> None:
    key, message = WRONG[more]
    text = FILE.format(more=more, key=key, format="json", rows=1)
    if "mode" in more:
        text = text.replace("    mode: upsert\n", "", 1)
    (tmp_path / "shop.yaml").write_text(text)

    with pytest.raises(PipelineFileError) as wrong:
        Pipeline.from_file(tmp_path / "shop.yaml")

    assert message in str(wrong.value)
