"""A failover, a restore or RESET MASTER of MySQL: later changes have smaller positions, and still count."""

from __future__ import annotations

import gc
import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.formats.debezium.sequence import sequence
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.sources.samples import SampleSource
from lakefeed.tables.log.entry import entry_name
from lakefeed.tables.log.log import Log
from lakefeed.tables.operations import rewind
from lakefeed.tables.operations.rewind import plan_rewind
from lakefeed.tables.write.keyed import KeyRules, backwards, binlogs
from lakefeed.testing import Sample, run_samples
from lakefeed.watch.health import concerns, remarks
from lakefeed.watch.state import RunState
from lakefeed.watch.web.status import status_of
from support.keyed_table import KeyedTable

FILE = """\
name: shop
sources:
  orders: {type: kafka, brokers: localhost:9092, topics: [orders], format: debezium}
tables:
  orders: {path: lake/orders, from: orders, mode: upsert}
"""
OLD = {"name": "shop", "server_id": 1, "gtid": "aaaa:9"}
NEW = {"name": "shop", "server_id": 2, "gtid": "bbbb:1"}
OLD_PLACE = {**OLD, "file": "binlog.000900", "pos": 400, "row": 0, "ts_ms": 1000}
SCHEMA = pa.schema([("id", pa.int64()), ("__sequence", pa.string()), ("v", pa.string())])


def place(server: dict[str, Any], file: int | None, pos: int, time: int) -> dict[str, Any]:
    name = "" if file is None else f"binlog.{file:06d}"
    return {**server, "file": name, "pos": pos, "row": 0, "ts_ms": time}


def change(op: str, source: dict[str, Any], key: int, name: str) -> Sample:
    side = "before" if op == "d" else "after"
    event = {"op": op, "ts_ms": 5, "source": source, side: {"id": key, "name": name}}
    return Sample(json=event, key=json.dumps({"id": key}).encode())


def names(folder: Path, events: list[Sample], *, rows: int = 100, mode: str = "upsert") -> dict[int, str]:
    folder.mkdir(exist_ok=True)
    (folder / "shop.yaml").write_text(FILE.replace("upsert", mode) + f"flush: {{rows: {rows}}}\n")
    landed = run_samples(Pipeline.from_file(folder / "shop.yaml"), {"orders": events}, folder / "landed")
    assert landed.dead_letters("orders") == []
    return {row["id"]: row["name"] for row in landed.rows("orders") if row.get("valid_to") is None}


BEFORE = [change("c", place(OLD, 900, 400, 1000), 1, "a"), change("c", place(OLD, 900, 500, 1000), 2, "b")]
CASES = {
    "failover to a server of the same name and id": ({"name": "shop", "server_id": 1}, 2000),
    "reset master": (OLD, 2000),
    "snapshot of the new server": ({"name": "shop", "server_id": 0, "gtid": None}, 2000),
    "another connector": ({"name": "other", "server_id": 7}, 900),
}


@pytest.mark.parametrize(("rows", "mode"), [(1, "upsert"), (100, "upsert"), (1, "history")])
def test_changes_of_another_server_are_newer(rows: int, mode: str, tmp_path: Path) -> None:
    after = [
        change("u", place(NEW, 1, 4, 900), 1, "new"),
        change("d", place(NEW, 1, 90, 901), 2, "b"),
        change("c", place(NEW, 1, 95, 901), 3, "c"),
        change("u", place(NEW, 1, 90, 901), 1, "late"),
        change("u", place(NEW, 2, 4, 901), 3, "d"),
    ]

    assert names(tmp_path, [*BEFORE, *after], rows=rows, mode=mode) == {1: "late", 3: "d"}


@pytest.mark.parametrize(
    "source", ["type: http, listen: 127.0.0.1:0, streams: [orders]", "type: files, path: d"]
)
@pytest.mark.parametrize("rows", [1, 100])
def test_changes_of_another_server_are_newer_whatever_source_brings_them(
    source: str, rows: int, tmp_path: Path
) -> None:
    after = [change("u", place(NEW, 1, 4, 900), 1, "new"), change("d", place(NEW, 1, 90, 901), 2, "b")]
    text = FILE.replace("type: kafka, brokers: localhost:9092, topics: [orders]", source)
    keyed = text.replace("mode: upsert", "mode: upsert, keys: id")
    (tmp_path / "shop.yaml").write_text(keyed + f"flush: {{rows: {rows}}}\n")
    events = {"orders": [Sample(json=one.json_) for one in (*BEFORE, *after)]}

    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), events, tmp_path / "landed")

    assert landed.dead_letters("orders") == []
    assert [(row["id"], row["name"]) for row in landed.rows("orders")] == [(1, "new")]


def test_what_a_connector_sends_again_changes_nothing(tmp_path: Path) -> None:
    events = [
        change("u", place(OLD, 900, 600, 1001), 1, "z"),
        change("d", place(OLD, 900, 700, 1001), 2, "b"),
    ]

    assert names(tmp_path / "one", [*BEFORE, *events, *BEFORE, events[0]], rows=1) == {1: "z"}
    assert names(tmp_path / "all", [*BEFORE, *events, *BEFORE, events[0]]) == {1: "z"}


def test_servers_that_write_one_binlog_in_turn_have_one_order(tmp_path: Path) -> None:
    events = [
        change("c", place(OLD, 5, 10, 9), 1, "a"),
        change("u", place(NEW, 5, 20, 7), 1, "b"),
        change("u", place(OLD, 5, 30, 8), 1, "c"),
    ]

    assert names(tmp_path, events, rows=1) == {1: "c"}


def by(server: int, number: int | None) -> dict[str, Any]:
    """A server whose transactions have numbers, or have none."""
    gtid = None if number is None else f"{server:08d}-aaaa:{number}"
    return {"name": "shop", "server_id": server, "gtid": gtid}


@pytest.mark.parametrize("mode", ["upsert", "history"])
@pytest.mark.parametrize("gtid", [True, False])
def test_a_binlog_with_changes_of_several_servers_is_sent_again_as_that_binlog(
    mode: str, gtid: bool, tmp_path: Path
) -> None:
    numbers = [7, 8, 3, 9, 4] if gtid else [None] * 5
    servers = [by(origin, number) for origin, number in zip([1, 1, 2, 1, 2], numbers, strict=True)]
    events = [
        change("c", place(servers[0], 5, 10, 1000), 1, "a"),
        change("d", place(servers[1], 5, 20, 1000), 1, "a"),
        change("c", place(servers[2], 5, 30, 2000), 2, "x"),
        change("u", place(servers[3], 5, 40, 3000), 2, "y"),
        change("u", place(servers[4], 5, 50, 4000), 2, "z"),
    ]
    once = rows(tmp_path / "once", events, mode)
    assert not any(row["__sequence"].startswith("e") for row in once)

    assert rows(tmp_path / "part", events + events[:3], mode) == once
    assert rows(tmp_path / "whole", events + events, mode) == once


def rows(folder: Path, events: list[Sample], mode: str) -> list[dict[str, Any]]:
    names(folder, events, rows=1, mode=mode)
    found = pa.RecordBatchReader.from_stream(
        DeltaTable(str(folder / "landed/tables/orders")).scan()
    ).read_all()
    return sorted(found.to_pylist(), key=lambda row: str(row["__sequence"]))


def test_numbers_of_transactions_tell_a_new_binlog_from_one_that_is_sent_again(tmp_path: Path) -> None:
    events = [
        change("c", place(by(1, 10), 900, 10, 1000), 1, "a"),
        change("u", place(by(1, 11), 900, 20, 1000), 1, "b"),
        # A replica of the same server, whose binlog has the transaction that was read last and the next one.
        change("u", place(by(1, 11), 3, 40, 1000), 1, "again"),
        change("u", place(by(1, 12), 3, 50, 1000), 1, "c"),
        change("u", place(by(1, 11), 3, 40, 1000), 1, "again"),
    ]

    assert names(tmp_path / "each", events, rows=1) == {1: "c"}
    assert names(tmp_path / "all", events) == {1: "c"}


def test_a_position_is_found_under_another_name_and_a_text_like_one_stays_a_text(tmp_path: Path) -> None:
    text = str(sequence(place(OLD, 900, 400, 1000), None))
    plain = text.partition("@")[0]
    for rest in ("rename: {__sequence: seq}", 'select: ["*", "__sequence AS seq"]'):
        folder = tmp_path / rest[0]
        folder.mkdir()
        keyed = FILE.replace("mode: upsert", f"mode: upsert, keys: id, sequence_by: seq, {rest}")
        (folder / "shop.yaml").write_text(keyed)
        landed = run_samples(
            folder / "shop.yaml", {"orders": [change("c", OLD_PLACE, 1, text)]}, folder / "all"
        )
        (row,) = landed.rows("orders")
        assert (row["name"], row["seq"]) == (text, plain)
        assert "@" not in row.get("__sequence", "")


def test_what_is_known_of_connectors_in_one_partition_is_bounded(
    table: KeyedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binlogs, "_MOST_STREAMS", 2)

    for number in range(5):
        connector = {"name": f"shop{number}", "server_id": 1}
        table.apply(staged(connector, 900 - number, 4, 1000 + number, v=str(number)))

    streams = {name.split("/")[3] for name in table.open().transactions if "#binlog" in name}
    assert len(streams) == 3 and "0@others" in streams
    assert [row["v"] for row in table.rows()] == ["4"]


def test_rows_of_an_incremental_snapshot_are_where_they_are_in_the_stream(tmp_path: Path) -> None:
    read = {"name": "shop", "server_id": 0}
    events = [
        *BEFORE,
        change("r", place(read, None, 0, 3000), 1, "a again"),
        change("r", place(read, None, 0, 3000), 2, "b again"),
        change("u", place(OLD, 900, 600, 1001), 1, "newer"),
        change("r", place(read, None, 0, 3000), 3, "read"),
    ]

    for rows in (1, 100):
        assert names(tmp_path / str(rows), events, rows=rows) == {1: "newer", 2: "b again", 3: "read"}


@pytest.fixture
def table(tmp_path: Path) -> KeyedTable:
    rules = KeyRules(("id",), ("__sequence",), ties_by_position=True, positions=("__sequence",))
    return KeyedTable(tmp_path / "rows", SCHEMA, rules)


def staged(server: dict[str, Any], file: int, pos: int, time: int, **more: Any) -> dict[str, Any]:
    return {"id": 1, "__sequence": sequence(place(server, file, pos, time), None), **more}


@pytest.mark.parametrize("case", CASES)
def test_another_binlog_is_known_by_its_server_or_by_the_time(case: str, table: KeyedTable) -> None:
    server, time = CASES[case]
    old, new = staged(OLD, 900, 4, 1000, v="a"), staged(server, 1, 4, time, v="new")

    table.apply(old, new)
    table.apply(staged(server, 1, 3, time, v="sent again"))

    assert [row["v"] for row in table.rows()] == ["new"]


def test_a_restart_between_knows_the_binlog_before(table: KeyedTable) -> None:
    table.apply(staged(OLD, 900, 4, 1000, v="a"))
    table.restart()
    first = table.apply(staged(NEW, 1, 4, 900, v="b"))
    table.restart()
    table.apply(staged(NEW, 1, 3, 890, v="sent again"))
    table.restart()

    assert [row["v"] for row in table.rows()] == ["b"]
    assert table.rows()[0]["__sequence"].startswith("e00001/")
    assert first.commit_info["binlogs"] == {"0": 1}


def test_a_rewind_takes_the_binlog_back(table: KeyedTable) -> None:
    changes = [staged(OLD, 900, 4, 1000, v="a"), staged(NEW, 1, 4, 900, v="b")]
    for one in changes:
        table.apply(one)
    lake = table.open()
    log = Log.open(lake.store)
    assert log is not None
    plan = plan_rewind(log, 0, None)
    rewind.restore(lake, plan, plan.transactions | {"shop/clicks/0": -1}, {"kind": "rewind"})
    table.restart()
    table.offsets = {}

    table.apply(changes[0])
    first = table.rows()[0]["__sequence"]
    table.apply(changes[1])

    assert first.startswith("0000")
    assert [row["v"] for row in table.rows()] == ["b"]
    assert table.rows()[0]["__sequence"].startswith("e00001/")


def test_a_dead_letter_of_the_server_before_is_older_than_its_row(table: KeyedTable) -> None:
    table.apply(staged(OLD, 900, 4, 1000, v="a"))
    table.apply(staged(NEW, 1, 4, 2000, v="b"))

    late = table.apply(staged(OLD, 901, 4, 1001, v="late", offset=1), replayed=True)

    assert [row["v"] for row in table.rows()] == ["b"]
    assert late.commit_info["stale"] == 1


def test_a_dead_letter_of_a_server_that_the_binlog_has_shown_is_of_that_binlog(table: KeyedTable) -> None:
    table.apply(staged(OLD, 900, 4, 1000, v="a"))
    table.apply(staged(NEW, 1, 4, 2000, v="b"))
    table.apply(staged(OLD, 1, 9, 2000, v="another row") | {"id": 2})

    table.apply(staged(NEW, 1, 7, 2000, v="late", offset=1), replayed=True)

    assert [row["v"] for row in table.rows()] == ["late", "another row"]


@pytest.mark.parametrize(("pos", "time"), [(7, 2000), (10, 2001)])
def test_a_dead_letter_of_the_server_by_now_is_newer_than_its_row(
    pos: int, time: int, table: KeyedTable
) -> None:
    table.apply(staged(OLD, 900, 4, 1000, v="a"))
    table.apply(staged(NEW, 1, 4, 2000, v="b"))
    table.apply(staged(NEW, 1, 9, 2000, v="another row") | {"id": 2})

    late = table.apply(staged(NEW, 1, pos, time, v="late", offset=1), replayed=True)

    assert [row["v"] for row in table.rows()] == ["late", "another row"]
    assert late.commit_info["stale"] == 0


def test_a_position_that_no_server_has_stops_nothing(table: KeyedTable) -> None:
    for number, (pos, time) in enumerate([(10**21, 2000), (4, 10**21), (-4, -1)]):
        table.apply(staged(OLD, 900, pos, time, v="a") | {"id": number})

    assert [row["id"] for row in table.rows()] == [0, 1, 2]
    assert not any("@" in row["__sequence"] for row in table.rows())


def test_a_partition_that_keys_move_to_continues_the_binlog_of_the_others(table: KeyedTable) -> None:
    table.apply(staged(OLD, 900, 4, 1000, v="a"))
    table.apply(staged(NEW, 1, 4, 2000, v="b"))

    table.apply(staged(NEW, 1, 9, 2001, v="c", **{"from": "1"}))

    assert [row["v"] for row in table.rows()] == ["c"]


def test_rows_that_an_earlier_release_took_for_the_newest_change_again(table: KeyedTable) -> None:
    table.apply({"id": 1, "__sequence": ":" + "0" * 20 + ":" + "0" * 20, "v": "read"})

    table.apply(staged(OLD, 900, 4, 1000, v="a"))

    assert [row["v"] for row in table.rows()] == ["a"]


def test_sequences_that_go_backwards_are_logged_once_with_the_way_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def event(lsn: int, time: int, name: str) -> Sample:
        value = {"op": "u", "ts_ms": time, "source": {"lsn": lsn}, "after": {"id": 1, "name": name}}
        return Sample(json=value, key=b'{"id": 1}')

    events = [event(900, 1, "a"), event(5, 2, "b"), event(6, 3, "c")]
    with caplog.at_level(logging.WARNING, "lakefeed"):
        assert names(tmp_path / "log", events, rows=1) == {1: "a"}

    (said,) = [record.getMessage() for record in caplog.records if "older than" in record.getMessage()]
    assert "orders-0: all changes of a batch are older than those before" in said
    assert said.endswith("order the table by time: `sequence_by: __ts_ms`.")
    by_time = FILE.replace("mode: upsert", "mode: upsert, sequence_by: __ts_ms")
    (tmp_path / "shop.yaml").write_text(by_time + "flush: {rows: 1}\n")
    landed = run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"orders": events}, tmp_path / "time")
    assert [row["name"] for row in landed.rows("orders")] == ["c"]


def test_a_table_whose_database_was_restored_while_nothing_ran_says_so_until_changes_are_newer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(*events: tuple[int, int, str]) -> tuple[RunState, list[str], list[str]]:
        """The state, `status` and `verify` after changes of a key at an LSN, each in a batch of its own."""
        given.extend(
            Sample(
                json={"op": "u", "ts_ms": 1, "source": {"lsn": lsn}, "after": {"id": key, "name": name}},
                key=json.dumps({"id": key}).encode(),
            )
            for lsn, key, name in events
        )
        state = RunState(pipeline)
        source = SampleSource.of(pipeline.inputs["orders"], "orders", given)
        run_inline(pipeline.model_copy(update={"sources": {"orders": source}}), state.watch)
        found, proof = status(pipeline), verify(pipeline)
        assert proof.sound
        return state, found.tables[0].backwards, proof.tables[0].notes

    given: list[Sample] = []
    (tmp_path / "shop.yaml").write_text(FILE + "flush: {rows: 1}\n")
    pipeline = Pipeline.from_file(tmp_path / "shop.yaml")
    _, told, notes = run((900, 1, "a"))
    assert told == [] and notes == []

    # New keys come beside those that stay as they are.
    state, told, notes = run((5, 1, "b"), (6, 2, "c"))

    (concern,) = concerns(state.view(), pipeline)
    assert (concern.level, concern.what) == ("warn", "table orders")
    assert "orders-0: all changes of a batch are older than those before, by `__sequence`" in concern.text
    assert "order the table by time: `sequence_by: __ts_ms`" in concern.remedy
    assert "table orders: orders-0: all changes of a batch are older" in remarks(state.view())[0]
    assert state.view().tables[0].state == "warn"
    assert told[0].startswith("orders-0: all changes") and notes[0].startswith("orders-0: all changes")
    assert status_of(state.view()).tables[0].backwards == told

    state, told, notes = run((901, 2, "d"))
    assert concerns(state.view(), pipeline) == [] and told == [] and notes == []

    # The log is cleaned up to a checkpoint, so that fewer entries are there than are looked at.
    lake = tmp_path / "lake" / "orders"
    delta = DeltaTable(lake)
    delta.create_checkpoint()
    for version in range(delta.version()):
        (lake / entry_name(version)).unlink()
    _, told, notes = run((902, 2, "e"))
    assert told == [] and notes == []


def test_each_partition_is_judged_alone_and_little_is_kept_of_it(
    table: KeyedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backwards, "_MOST_PARTITIONS", 3)

    def change(partition: str, lsn: int, key: int = 1) -> dict[str, Any]:
        return {"id": key, "__sequence": f"{lsn:020d}", "v": "x", "from": partition}

    table.apply(change("a", 900), change("b", 5, key=2))
    table.restart()
    entry = table.apply(change("a", 7), change("b", 9, key=2))
    assert entry.commit_info["sequences"]["backwards"] == ["a"]

    before = pa.total_allocated_bytes()
    for day in range(20):
        rows = [change(f"day-{day}", 1000 * day + n, key=n) for n in range(1000)]
        newest = table.apply(*rows).commit_info["sequences"]["newest"]
    del rows
    gc.collect()

    assert newest == {f"day-{day}": [f"{1000 * day + 999:020d}"] for day in (17, 18, 19)}
    assert pa.total_allocated_bytes() - before < 2**20


def test_positions_of_informix_and_yugabyte_grow_with_their_texts() -> None:
    growing = [
        [{"change_lsn": "999"}, {"change_lsn": "21484683252"}],
        [{"commit_lsn": "999", "change_lsn": "-1"}, {"commit_lsn": "999", "change_lsn": "1000"}],
        [{"lsn": "1:4::0:0"}, {"lsn": "1:12::0:0"}, {"lsn": "2:1::0:0"}],
        [{"lsn": "9:4::0:0", "commit_time": 7}, {"lsn": "1:4::0:0", "commit_time": 10, "record_time": 3}],
        [{"file": "", "pos": 0}, {"file": "mysql-bin.000001", "pos": 4}],
    ]

    for places in growing:
        texts = [str(sequence(place, None)) for place in places]
        assert texts == sorted(set(texts))
    # What an earlier release stored, of numbers of any length.
    assert str(sequence({"change_lsn": "5"}, None)) > "99:00000000000000000000"
