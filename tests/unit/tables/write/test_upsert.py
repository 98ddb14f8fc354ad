"""Upsert: newer wins, whatever order changes come in, and files that hold no changed row stay."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefeed.tables.write.commit as committing
from lakefeed.errors import TableError
from lakefeed.tables.log.entry import entry_name
from lakefeed.tables.operations import restore
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.keyed.staged import logged_keys
from lakefeed.tables.write.keyed.tombstones import TombstoneWriter
from lakefeed.tables.write.mode import Change, NewEntry
from lakefeed.tables.write.upsert import UpsertMode
from support.keyed_table import KeyedTable

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("name", pa.string())])
RULES = KeyRules(("id",), ("at",))


def shop(folder: Path, rules: KeyRules = RULES, schema: pa.Schema = SCHEMA, **more: object) -> KeyedTable:
    return KeyedTable(folder / "rows", schema, rules, **more)  # type: ignore[arg-type]


def test_the_newest_change_of_a_key_is_its_row(tmp_path: Path) -> None:
    table = shop(tmp_path)

    first = table.apply({"id": 1, "at": 1, "name": "a"}, {"id": 2, "at": 1, "name": "b"})
    second = table.apply({"id": 1, "at": 3, "name": "c"}, {"id": 1, "at": 2, "name": "x"})

    assert table.rows() == [{"id": 1, "at": 3, "name": "c"}, {"id": 2, "at": 1, "name": "b"}]
    assert (first.commit_info["applied"], first.commit_info["folded"]) == (2, 0)
    assert (second.commit_info["applied"], second.commit_info["folded"]) == (1, 1)


def test_an_older_change_is_counted_and_changes_nothing(tmp_path: Path) -> None:
    table = shop(tmp_path)
    table.apply({"id": 1, "at": 5, "name": "new"})

    late = table.apply({"id": 1, "at": 4, "name": "old"})

    assert table.rows() == [{"id": 1, "at": 5, "name": "new"}]
    assert late.commit_info["stale"] == 1
    assert not late.added
    assert not late.removed
    assert table.table.transactions["shop/clicks/0"] == 1


def test_a_change_that_comes_once_more_rewrites_nothing_whatever_its_values(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, ("price", pa.float64()), ("path", pa.list_(pa.float64()))])
    table = shop(tmp_path, schema=schema)
    change = {"id": 1, "at": 5, "name": None, "price": float("nan"), "path": [float("nan"), None]}
    table.apply(change)

    again = table.apply(change)

    assert (again.commit_info["applied"], again.commit_info["stale"]) == (0, 1)
    assert not again.added and not again.removed


def test_nulls_say_nothing_where_they_are_ignored(tmp_path: Path) -> None:
    table = shop(tmp_path, KeyRules(("id",), ("at",), ignore_nulls=True))
    table.apply({"id": 1, "at": 1, "name": "a"}, {"id": 2, "at": 1, "name": "b"})

    table.apply({"id": 1, "at": 2}, {"id": 2, "at": 2, "name": "c"}, {"id": 2, "at": 3})

    assert table.rows() == [{"id": 1, "at": 2, "name": "a"}, {"id": 2, "at": 3, "name": "c"}]


def test_a_late_change_does_not_bring_a_deleted_row_back(tmp_path: Path) -> None:
    table = shop(tmp_path)
    table.apply({"id": 1, "at": 5, "name": "a"})
    table.apply({"id": 1, "at": 7, "op": "delete"}, {"id": 2, "at": 7, "op": "delete"})

    late = table.apply({"id": 1, "at": 6, "name": "b"}, {"id": 2, "at": 7, "name": "b"})
    assert table.rows() == []
    assert late.commit_info["stale"] == 2

    table.apply({"id": 1, "at": 8, "name": "back"})
    assert table.rows() == [{"id": 1, "at": 8, "name": "back"}]


def test_files_without_a_changed_row_stay_and_others_keep_their_range(tmp_path: Path) -> None:
    table = shop(tmp_path, max_rows=100)
    table.apply(*({"id": key, "at": 1, "name": "a"} for key in range(1000)))

    entry = table.apply({"id": 150, "at": 2, "name": "b"}, {"id": 160, "at": 2, "op": "delete"})

    assert (entry.commit_info["looked_at"], entry.commit_info["rewritten"]) == (1, 1)
    assert entry.commit_info["copied"] == 98
    (added,) = (json.loads(file.stats) for file in entry.added)
    assert (added["minValues"]["id"], added["maxValues"]["id"], added["numRecords"]) == (100, 199, 99)
    (path,) = (Path(table.path) / file.path for file in entry.added)
    ids = pq.read_table(path)["id"].to_pylist()
    assert ids == sorted(ids)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["x" * 40 + "a", "x" * 40 + "b", "ÿ\U0010ffff" * 20, ""]),
        (pa.decimal128(38, 2), [Decimal("12345678901234567890.12"), Decimal("-0.01"), Decimal(0)]),
        (pa.timestamp("us", "UTC"), [1, 999, 1_000_001, 10**15 + 1]),
        (pa.date32(), [0, 1, 20_000]),
        (pa.binary(), [b"", b"\xff\xfe", b"a"]),
        (pa.bool_(), [True, False]),
        (pa.int8(), [-128, 0, 127]),
    ],
)
def test_keys_of_every_type_are_found_again(kind: pa.DataType, values: list[Any], tmp_path: Path) -> None:
    keys = pa.array(values, kind).to_pylist()
    schema = pa.schema([("id", kind), ("at", pa.int64()), ("name", pa.string())])
    table = shop(tmp_path, schema=schema)
    for key in keys:
        table.apply({"id": key, "at": 1, "name": "a"})

    table.apply(*({"id": key, "at": 2, "name": "b"} for key in keys))

    assert sorted(map(repr, (row["id"] for row in table.rows()))) == sorted(map(repr, keys))
    assert {row["name"] for row in table.rows()} == {"b"}


def test_statistics_that_others_have_cut_do_not_hide_a_row(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.timestamp("us", "UTC")), ("at", pa.int64()), ("name", pa.string())])
    table = shop(tmp_path, schema=schema)
    moment = dt.datetime(2026, 11, 1, 0, 0, 0, 123_999, tzinfo=dt.UTC)
    # delta-rs cuts the times of statistics to milliseconds.
    row = pa.table({"id": [moment], "at": [1], "name": ["a"]}, schema=schema)
    write_deltalake(table.path, row, mode="append")
    table.table.refresh()

    table.apply({"id": moment, "at": 2, "name": "b"})

    assert [one["name"] for one in table.rows()] == ["b"]


def test_a_replayed_change_obeys_the_sequence(tmp_path: Path) -> None:
    table = shop(tmp_path)
    table.apply({"id": 1, "at": 5, "name": "a"}, {"id": 2, "at": 5, "op": "delete"})

    again = table.apply(
        {"id": 1, "at": 4, "name": "old", "offset": 0},
        {"id": 2, "at": 4, "name": "old", "offset": 0},
        {"id": 3, "at": 1, "name": "new", "offset": 0},
        replayed=True,
    )
    same = table.apply({"id": 1, "at": 5, "name": "tie", "offset": 0}, replayed=True)

    assert [(row["id"], row["name"]) for row in table.rows()] == [(1, "a"), (3, "new")]
    assert (again.commit_info["stale"], same.commit_info["stale"]) == (2, 1)


def test_a_truncation_before_any_key_is_known_changes_nothing_in_an_empty_table(tmp_path: Path) -> None:
    table = shop(tmp_path, KeyRules((), ("at",)))
    truncation = {"at": 1, "op": "truncate"}

    entry = table.apply(truncation)
    table.apply({"id": 1, "at": 2, "name": "a", "keys": ["id"]})
    table.apply({"at": 3, "op": "truncate"})

    assert (entry.commit_info["changes"], entry.commit_info["folded"], entry.added) == (1, 1, ())
    assert table.table.transactions["shop/clicks/0"] == 2
    assert DeltaTable(table.path).count() == 0


def test_the_key_that_events_have_brought_is_that_of_the_rows_that_are_there(tmp_path: Path) -> None:
    table = shop(tmp_path, KeyRules((), ("at",)))
    table.apply({"id": 1, "at": 1, "name": "a", "keys": ["id"]})
    before = table.table.version
    table.restart()
    table.apply({"id": 1, "at": 2, "name": "b", "keys": ["id", "name"]})
    now = logged_keys(table.open())

    restore.run(table.open(), restore.plan(table.open(), before), {"kind": "restore", "by": "test"})

    assert now == ("id", "name")
    assert logged_keys(table.open()) == ("id",)
    # Only the newest entries are read, however old the table is.
    lake = table.open()
    (tmp_path / "rows" / entry_name(0)).write_text("no entry")
    assert logged_keys(lake) == ("id",)


def test_a_truncation_of_rows_of_which_no_key_is_known_is_refused(tmp_path: Path) -> None:
    table = shop(tmp_path, KeyRules((), ("at",)))
    write_deltalake(table.path, pa.table([[1], [1], ["a"]], schema=SCHEMA), mode="append")
    table.restart()

    with pytest.raises(TableError, match="nothing has said yet which columns are the key"):
        table.apply({"at": 2, "op": "truncate"})


@pytest.mark.parametrize("ties", [False, True])
def test_truncations_that_come_alone_are_applied_one_after_the_other(ties: bool, tmp_path: Path) -> None:
    rules = KeyRules(("id",), ("seq",), ties_by_position=ties)
    table = KeyedTable(tmp_path, pa.schema([("id", pa.int64()), ("seq", pa.int64())]), rules)
    table.apply({"id": 1, "seq": 1}, {"id": 2, "seq": 9})

    counts = [table.apply({"op": "truncate", "seq": seq}).commit_info for seq in (2, 3, 3)]

    assert table.rows() == [{"id": 2, "seq": 9}]
    assert [(one["applied"], one["stale"]) for one in counts] == [(1, 0), (1, 0), (int(ties), int(not ties))]


def test_a_replayed_tombstone_deletes_no_row(tmp_path: Path) -> None:
    table = shop(tmp_path)
    table.apply({"id": 1, "at": 5, "name": "a"}, {"id": 2, "at": 5, "name": "b"})

    again = table.apply({"id": 1, "at": None, "op": "tombstone", "offset": 0}, replayed=True)
    now = table.apply({"id": 2, "at": None, "op": "tombstone"})

    assert [(row["id"], row["name"]) for row in table.rows()] == [(1, "a")]
    assert (again.commit_info["stale"], now.commit_info["deleted"]) == (1, 1)


def test_without_a_sequence_a_replayed_change_never_replaces_a_row(tmp_path: Path) -> None:
    table = shop(tmp_path, KeyRules(("id",)))
    table.apply({"id": 1, "at": 0, "name": "a"}, {"id": 2, "op": "delete"})

    table.apply(
        {"id": 1, "name": "old", "offset": 0},
        {"id": 2, "name": "old", "offset": 0},
        {"id": 3, "name": "new", "offset": 0},
        replayed=True,
    )

    assert [(row["id"], row["name"]) for row in table.rows()] == [(1, "a"), (3, "new")]


@pytest.mark.parametrize("rival", ["append", "compact", "delete", "upsert"])
def test_another_writer_in_between_is_taken_into_account(rival: str, tmp_path: Path) -> None:
    table = shop(tmp_path)
    for key in range(4):
        table.apply({"id": key, "at": 1, "name": "a"})
    change = table.change([{"id": key, "at": 3, "name": "c"} for key in range(6)])
    entry = table.mode.entry
    tries = []

    def meddled(lake: LakeTable, change: Change) -> NewEntry:
        decided = entry(lake, change)
        tries.append(decided)
        if len(tries) == 1:
            _meddle(rival, table)
        return decided

    table.mode.entry = meddled  # type: ignore[method-assign]
    commit(table.table, change, table.mode, retries=2)

    assert len(tries) == 2
    left = {"append": 5, "upsert": 5}
    newest = [row for row in table.rows() if row["name"] != "c"]
    assert [row["id"] for row in newest] == ([left[rival]] if rival in left else [])
    assert sorted(row["id"] for row in table.rows()) == sorted({row["id"] for row in table.rows()})
    # What the first try has written is gone.
    assert not any((Path(table.path) / path).exists() for path in tries[0].made)


def _meddle(rival: str, table: KeyedTable) -> None:
    delta = DeltaTable(table.path)
    match rival:
        case "append":
            row = pa.table({"id": [5], "at": [9], "name": ["theirs"]}, schema=SCHEMA)
            write_deltalake(delta, row, mode="append")
        case "compact":
            delta.optimize.compact()
        case "delete":
            delta.delete("id = 2")
        case _:
            other = KeyedTable.__new__(KeyedTable)
            other.__dict__ |= table.__dict__
            other.offsets = {}
            other.restart()
            change = other.change([{"id": 5, "at": 9, "name": "theirs", "from": "9"}])
            commit(other.table, change, other.mode, retries=0)


POINTS = ["folded", "written", "buried", "before the entry", "after the entry"]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_step_changes_nothing(point: str, tmp_path: Path, monkeypatch: Any) -> None:
    table = shop(tmp_path)
    table.apply(*({"id": key, "at": 1, "name": "a"} for key in range(10)))
    batch = [
        {"id": 3, "at": 2, "name": "b"},
        {"id": 4, "at": 2, "op": "delete"},
        {"id": 77, "at": 2, "name": "n"},
    ]
    offsets = dict(table.offsets)
    change = table.change(batch)

    _die_at(point, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        commit(table.table, change, table.mode, retries=0)
    monkeypatch.undo()
    table.restart()
    if table.table.transactions["shop/clicks/0"] == offsets["0"] - 1:
        table.offsets = offsets
        assert len(table.rows()) == 10
        table.apply(*batch)

    names = {row["id"]: row["name"] for row in table.rows()}
    assert names == {**dict.fromkeys([0, 1, 2, 5, 6, 7, 8, 9], "a"), 3: "b", 77: "n"}
    assert table.apply({"id": 4, "at": 1, "name": "late"}).commit_info["stale"] == 1


def _die_at(point: str, monkeypatch: Any) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt(point)

    def die_after(real: Any) -> Any:
        return lambda *given, **named: (real(*given, **named), die())

    match point:
        case "folded":
            monkeypatch.setattr(UpsertMode, "_decide", die)
        case "written":
            monkeypatch.setattr(CopyOnWrite, "write", die_after(CopyOnWrite.write))
        case "buried":
            monkeypatch.setattr(TombstoneWriter, "close", die_after(TombstoneWriter.close))
        case "before the entry":
            monkeypatch.setattr(committing, "try_entry", die)
        case _:
            monkeypatch.setattr(committing, "try_entry", die_after(committing.try_entry))
