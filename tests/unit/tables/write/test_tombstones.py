"""Tombstones expire by the time of events as well: what is read late is not late."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefeed.tables.write.keyed.tombstones as remembering
from lakefeed import Pipeline
from lakefeed.errors import TableError
from lakefeed.handles import retype
from lakefeed.handles.retype import retyped
from lakefeed.tables.log.log import Log
from lakefeed.tables.operations import restore, rewind, vacuum
from lakefeed.tables.operations.rewind import plan_rewind
from lakefeed.tables.positions import tombstone_heads
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
from lakefeed.tables.write.keyed.tombstones import Tombstones, segments
from lakefeed.tables.write.upsert import UpsertMode
from lakefeed.testing import Sample, run_samples
from support.keyed_table import KeyedTable

HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
MONDAY = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string())])


class Clock:
    """The clock of the machine, in the hands of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = MONDAY
        monkeypatch.setattr(remembering, "_now", lambda: int(self.now.timestamp() * 1_000_000))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def table(tmp_path: Path) -> KeyedTable:
    """Tombstones of it count for an hour."""
    return KeyedTable(tmp_path / "rows", SCHEMA, KeyRules(("id",), ("seq",)))


def up(key: int, seq: int, time: dt.datetime | None, **more: Any) -> dict[str, Any]:
    return {"id": key, "seq": seq, "v": "x", "time": time, **more}


def gone(key: int, seq: int, time: dt.datetime | None, **more: Any) -> dict[str, Any]:
    return {"id": key, "seq": seq, "op": "delete", "time": time, **more}


def ids(table: KeyedTable) -> list[int]:
    return [row["id"] for row in table.rows()]


def test_after_a_pause_a_late_change_brings_no_row_back(table: KeyedTable, clock: Clock) -> None:
    table.apply(gone(1, 7, MONDAY))
    clock.now += 3 * DAY

    # The backlog of three days is one batch.
    late = table.apply(up(1, 6, MONDAY + HOUR / 2), up(2, 1, MONDAY + 3 * DAY))

    assert ids(table) == [2]
    assert late.commit_info["stale"] == 1


def test_a_backfill_of_old_events_deletes_as_they_did_then(table: KeyedTable, clock: Clock) -> None:
    last_year = MONDAY - 365 * DAY
    table.apply(up(9, 1, MONDAY, **{"from": "live"}))
    table.apply(gone(1, 7, last_year), gone(2, 7, last_year + HOUR / 2))
    clock.now += DAY

    table.apply(up(9, 2, clock.now, **{"from": "live"}), gone(8, 2, clock.now, **{"from": "live"}))
    table.restart()
    table.apply(up(1, 6, last_year + HOUR / 2), up(2, 6, last_year + HOUR))

    assert ids(table) == [9]


def test_a_tombstone_expires_once_all_that_comes_is_newer_by_its_age(table: KeyedTable, clock: Clock) -> None:
    table.apply(gone(1, 7, MONDAY), gone(2, 7, MONDAY + HOUR))
    clock.now += 3 * DAY

    table.apply(up(1, 6, MONDAY + 1.5 * HOUR), up(2, 6, MONDAY + 1.5 * HOUR))

    assert ids(table) == [1]


def test_deletions_of_later_events_make_older_ones_expire(table: KeyedTable, clock: Clock) -> None:
    table.apply(gone(1, 7, MONDAY))
    clock.now += 3 * DAY
    table.apply(gone(2, 7, clock.now))

    # Its own time says that it is not late, and nobody can know that for ever.
    table.apply(up(1, 6, MONDAY))

    assert ids(table) == [1]


def test_an_event_from_the_future_lets_no_new_tombstone_expire(table: KeyedTable, clock: Clock) -> None:
    table.apply(gone(1, 7, MONDAY), gone(2, 7, MONDAY + 900 * DAY))

    table.apply(up(1, 6, MONDAY + 901 * DAY))

    assert ids(table) == []


def test_without_times_a_tombstone_expires_by_the_clock_of_the_machine(
    table: KeyedTable, clock: Clock
) -> None:
    table.apply(gone(1, 7, None), gone(2, 7, None))
    clock.now += HOUR / 2
    table.apply(up(1, 6, None))
    clock.now += HOUR
    table.apply(up(2, 6, None))

    assert ids(table) == [2]


def test_expired_tombstones_are_not_kept(table: KeyedTable, clock: Clock, tmp_path: Path) -> None:
    for number in range(60):
        table.apply(gone(number, 7, clock.now))
        clock.now += HOUR / 2

    newest = max((tmp_path / "rows").glob("_lakefeed/tombstones/*.parquet"), key=lambda one: int(one.stem))
    older = pq.ParquetFile(newest).schema_arrow.metadata[b"lakefeed.older"]
    folder = newest.parent
    numbers = [int(one) for one in older.strip(b"[]").split(b",") if one.strip()]
    kept = sum(pq.ParquetFile(folder / f"{one}.parquet").metadata.num_rows for one in numbers)
    assert kept < 25


def test_a_late_change_splits_a_history_after_a_pause(tmp_path: Path, clock: Clock) -> None:
    span = [pa.field("valid_from", pa.int64()), pa.field("valid_to", pa.int64())]
    rules = HistoryRules(("id",), ("seq",))
    table = KeyedTable(tmp_path / "rows", pa.schema([*SCHEMA, *span]), rules, modes=HistoryMode)
    table.apply(gone(1, 30, MONDAY), gone(1, 20, MONDAY))
    clock.now += 3 * DAY
    table.restart()

    table.apply(up(1, 10, MONDAY + HOUR / 2), up(1, 25, MONDAY + HOUR / 2), up(2, 1, MONDAY + 3 * DAY))

    found = sorted((row["id"], row["valid_from"], row["valid_to"]) for row in table.rows())
    assert found == [(1, 10, 20), (1, 25, 30), (2, 1, None)]


def test_events_of_a_pipeline_bring_their_time_and_partition(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        "name: shop\n"
        'sources: {customers: {type: kafka, brokers: "localhost:9", topics: [customers], format: json}}\n'
        "tables:\n  customers: {path: lake/customers, from: customers, mode: upsert, keys: id,\n"
        "    sequence_by: seq, delete_when: gone, schema: {id: long, seq: long, gone: boolean}}\n"
    )
    deleted = Sample(json={"id": 1, "seq": 7, "gone": True}, timestamp=MONDAY)

    run_samples(Pipeline.from_file(tmp_path / "shop.yaml"), {"customers": [deleted]}, tmp_path / "run")

    (path,) = tmp_path.glob("run/**/tombstones/*.parquet")
    (stone,) = pq.read_table(path).to_pylist()
    assert stone["_lakefeed_time"] == MONDAY
    assert stone["_lakefeed_clock"] == "customers/customers-0"


def in_memory(table: KeyedTable) -> int:
    """How many tombstones a new process has, whether they count or not."""
    known = Tombstones(table.rules, 3600.0, table.pipeline, retyped).load(table.open())
    return sum(len(segment) for segment in known.segments)


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few files become one, so that it happens often."""
    monkeypatch.setattr(remembering, "_MOST_SEGMENTS", 3)


@pytest.mark.parametrize("mode", [UpsertMode, HistoryMode])
@pytest.mark.usefixtures("few_files")
def test_two_pipelines_remember_each_deletion_once(mode: type[UpsertMode], tmp_path: Path) -> None:
    rules: KeyRules = KeyRules(("id",), ("seq",))
    schema = SCHEMA
    if mode is HistoryMode:
        rules = HistoryRules(("id",), ("seq",))
        schema = pa.schema([*SCHEMA, ("valid_from", pa.int64()), ("valid_to", pa.int64())])
    table = KeyedTable(tmp_path / "rows", schema, rules, modes=mode)
    other = table.beside("other")

    for number in range(0, 20, 2):
        table.apply(gone(number, 7, MONDAY))
        other.apply(gone(number + 1, 7, MONDAY))
    table.apply(*(gone(number, 8, MONDAY) for number in range(10)))

    memory = type(table.mode._tombstones)(rules, 3600.0, "shop", retyped)  # type: ignore[attr-defined]
    every = pa.table({"id": np.arange(20)})
    assert memory.load(table.open()).of(every).num_rows == (30 if mode is HistoryMode else 20)
    other.restart()
    other.apply(*(up(number, 6, MONDAY) for number in range(20)))
    assert [row for row in table.rows() if row.get("valid_to") is None and mode is UpsertMode] == []


@pytest.mark.usefixtures("few_files")
def test_without_a_sequence_each_partition_has_its_last_deletion(tmp_path: Path) -> None:
    table = KeyedTable(tmp_path / "rows", SCHEMA, KeyRules(("id",)))
    for _ in range(4):
        table.apply(gone(1, 7, MONDAY), gone(2, 7, MONDAY))
        table.apply(gone(1, 7, MONDAY, **{"from": "1"}))

    known = Tombstones(table.rules, 3600.0, "shop", retyped).load(table.open())
    assert known.of(pa.table({"id": [1, 2]})).num_rows == 3
    assert in_memory(table) < 3 * 3


@pytest.mark.usefixtures("few_files")
def test_tombstones_of_partitions_that_have_ended_expire(table: KeyedTable, clock: Clock) -> None:
    """A topic for each day brings a partition that ends with the day."""
    sizes = []
    for day in range(24):
        for number in range(4):
            table.apply(gone(10 * day + number, 7, clock.now, **{"from": f"day-{day}"}))
            clock.now += dt.timedelta(minutes=10)
        table.restart()
        sizes.append(in_memory(table))

    # An hour of work is some 48 batches, however long the breaks between them are.
    assert sizes[10] > 30
    assert max(sizes) < 75


def test_a_pause_ends_no_partition(table: KeyedTable, clock: Clock) -> None:
    table.apply(gone(1, 7, MONDAY), gone(9, 7, MONDAY, **{"from": "1"}))
    for _ in range(5):
        clock.now += 3 * DAY
        table.restart()
        table.apply(gone(2, 7, clock.now, **{"from": "1"}))

    table.apply(up(1, 6, MONDAY + HOUR / 2))

    assert ids(table) == []


def test_a_version_that_can_be_gone_back_to_keeps_its_tombstones(table: KeyedTable, clock: Clock) -> None:
    clock.now = dt.datetime.now(dt.UTC)
    for number in range(20):
        table.apply(gone(number, 7, clock.now))
    before = table.table.version
    clock.now += 9 * DAY
    table.apply(gone(100, 7, clock.now))
    table.apply(gone(102, 7, clock.now))

    lake = table.open()
    plan = vacuum.plan(lake, now=(clock.now + DAY).timestamp())

    vacuum.run(lake, plan, {"kind": "test"})

    log = Log.open(lake.store)
    assert plan.files
    assert log is not None
    assert plan_rewind(log, before, None).transactions["shop/#tombstones"]


@pytest.mark.parametrize("by", ["restore", "rewind"])
def test_versions_that_a_table_has_gone_back_from_keep_their_tombstones(
    by: str, table: KeyedTable, clock: Clock
) -> None:
    def go_back(version: int) -> None:
        lake = table.open()
        log = Log.open(lake.store)
        assert log is not None
        if by == "restore":
            restore.run(lake, restore.plan(lake, version), {"kind": "restore"})
        else:
            rewind.restore(lake, plan_rewind(log, version, None), {}, {"kind": "rewind", "to": version})
        table.restart()

    clock.now = dt.datetime.now(dt.UTC) - 20 * DAY
    for number in range(35):
        table.apply(gone(number, 7, MONDAY))
    abandoned = table.table.version
    clock.now += 15 * DAY
    go_back(2)
    table.apply(gone(50, 7, MONDAY), up(1, 7, MONDAY), up(2, 6, MONDAY))
    assert ids(table) == [2]

    lake = table.open()
    for path in Path(table.path).glob("_lakefeed/tombstones/*.parquet"):
        written = int(path.stem) / 1e6
        os.utime(path, (written, written))
    # Those that ten at a time became one, before the table went back.
    within, long_ago = vacuum.plan(lake), vacuum.plan(lake, now=time.time() + 3 * DAY.total_seconds())
    vacuum.run(lake, within, {"kind": "test"})
    go_back(abandoned)
    table.apply(gone(51, 7, MONDAY), *(up(at, 6, MONDAY) for at in (1, 2, 34, 50)))

    assert ids(table) == [50]
    deleted, later = (
        {file.path for file in one.files if "tombstones" in file.path} for one in (within, long_ago)
    )
    assert len(deleted) > 20 and deleted < later


def test_vacuum_opens_a_tenth_of_the_files_of_tombstones_at_most(
    table: KeyedTable, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    told = remembering._told
    monkeypatch.setattr(remembering, "_told", lambda store, path: (opened.append(path), told(store, path))[1])
    named = []
    for number in range(120):
        clock.now = MONDAY + number * HOUR
        table.apply(gone(number, 7, MONDAY))
        heads = tombstone_heads(table.table.transactions)
        named.append(remembering.referenced(table.table.store, heads))
    lake = table.open()
    opened.clear()

    for hours in (119.5, 100.5, 60.5):
        since = (MONDAY + hours * HOUR).timestamp()
        found = remembering.referenced(lake.store, tombstone_heads(lake.transactions), since)
        written_before = {path for path in named[int(hours)] if int(Path(path).stem) < since * 1e6}
        assert written_before <= found
        assert len(opened) <= 1 + 1.1 * (120 - hours) / 9
        opened.clear()
    remembering.referenced(lake.store, tombstone_heads(lake.transactions), MONDAY.timestamp() - 7200)
    assert len(opened) == 1


def test_going_back_is_refused_where_tombstones_are_gone(table: KeyedTable, tmp_path: Path) -> None:
    table.apply(up(1, 1, MONDAY))
    table.apply(gone(1, 7, MONDAY))
    (old,) = (tmp_path / "rows" / "_lakefeed" / "tombstones").glob("*.parquet")
    for number in range(2, 25):
        table.apply(gone(number, 7, MONDAY))
    old.unlink()
    lake = table.open()
    log = Log.open(lake.store)
    assert log is not None

    for go_back in (lambda: plan_rewind(log, 2, None), lambda: restore.plan(lake, 2)):
        with pytest.raises(TableError) as refused:
            go_back()
        assert f"version 2 cannot be restored: _lakefeed/tombstones/{old.name} is gone" in str(refused.value)


def test_a_restore_takes_tombstones_back_with_the_rows(table: KeyedTable) -> None:
    table.apply(up(1, 1, MONDAY))
    table.apply(gone(1, 9, MONDAY), gone(2, 9, MONDAY))

    lake = table.open()
    plan = restore.plan(lake, 1)
    restore.run(lake, plan, {"kind": "restore"})
    table.table.refresh()
    table.apply(up(1, 5, MONDAY), up(2, 5, MONDAY))

    assert ids(table) == [1, 2]
    assert list(plan.moved) == ["shop/clicks/0"]


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only hashes stay in memory, and files are read a few rows at a time."""
    monkeypatch.setattr(remembering, "_HELD_BYTES", 0)
    for name in ("_WINDOW_ROWS", "_READ_ROWS"):
        monkeypatch.setattr(segments, name, 3)


@pytest.mark.usefixtures("few_files", "little_memory")
def test_tombstones_that_only_files_hold_are_found_and_expire(table: KeyedTable, clock: Clock) -> None:
    other = table.beside("other")
    for number in range(0, 40, 4):
        table.apply(*(gone(at, 7, clock.now) for at in range(number, number + 3)))
        other.apply(gone(number + 3, 7, clock.now), gone(number, 8, clock.now))
    table.apply(*(up(number, 8 - number % 2, clock.now) for number in range(40)))
    assert sorted(ids(table)) == [at for at in range(40) if at % 2 == 0 and at % 4]

    clock.now += 3 * DAY
    other.apply(gone(100, 7, clock.now))
    table.apply(gone(101, 7, clock.now), *(up(number, 6, clock.now) for number in (1, 3)))

    assert sorted(ids(table))[:3] == [1, 2, 3]
    assert in_memory(table) == 2


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("kind", [pa.int32(), pa.string(), pa.decimal128(12, 2), pa.date32(), pa.bool_()])
def test_keys_of_every_type_are_found_by_their_hashes(kind: pa.DataType, tmp_path: Path) -> None:
    table = KeyedTable(
        tmp_path / "rows", SCHEMA.set(0, pa.field("id", kind)), KeyRules(("id", "v"), ("seq",))
    )
    keys = [0, 1] if kind == pa.bool_() else range(300)
    values = pa.array(keys, pa.int64()).cast(pa.int32()).cast(kind).to_pylist()
    texts = [None if at % 50 == 0 else "x" * at for at in range(300)]

    table.apply(*(gone(key, 7, MONDAY, v=text or "") for key, text in zip(values, texts, strict=False)))
    table.restart()
    late = table.apply(*(up(key, 6, MONDAY, v=text or "") for key, text in zip(values, texts, strict=False)))

    assert late.commit_info["stale"] == len(values)
    assert table.rows() == []


def test_a_key_that_gets_another_type_stays_deleted(tmp_path: Path) -> None:
    narrow = SCHEMA.set(0, pa.field("id", pa.int32()))
    table = KeyedTable(tmp_path / "rows", narrow, KeyRules(("id",), ("seq",)))
    table.apply(gone(1, 7, MONDAY))
    folder = Path(table.path) / "_lakefeed" / "tombstones"

    wide = KeyedTable(tmp_path / "others", SCHEMA, KeyRules(("id",), ("seq",)))
    wide.apply(gone(2, 7, MONDAY))
    (own,) = (Path(wide.path) / "_lakefeed" / "tombstones").glob("*.parquet")
    (old,) = folder.glob("*.parquet")
    own.write_bytes(old.read_bytes())
    wide.restart()
    wide.apply(up(1, 6, MONDAY), up(2, 6, MONDAY))

    assert ids(wide) == [2]


DAYS = [dt.datetime(2026, 3, day, tzinfo=dt.UTC) for day in (1, 2, 3)]
TEXTS = [f"{day:%Y-%m-%dT%H:%M:%SZ}" for day in DAYS]


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(
    ("kind", "new", "before", "after"),
    [
        (pa.string(), "timestamp", TEXTS, DAYS),
        (pa.timestamp("us", "UTC"), "string", DAYS, TEXTS),
    ],
    ids=["timestamp", "string"],
)
def test_a_key_and_a_sequence_that_get_other_types_stay_deleted(
    kind: pa.DataType, new: str, before: list[Any], after: list[Any], held: bool,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if not held:
        monkeypatch.setattr(remembering, "_HELD_BYTES", 0)
    schema = pa.schema([("id", pa.string()), ("at", kind), ("v", pa.string())])
    table = KeyedTable(tmp_path / "rows", schema, KeyRules(("id",), ("at",)))
    for key in ("abc", "1", "2"):
        table.apply({"id": key, "at": before[2], "op": "delete"})
    retype.run(table.open(), retype.plan(table.open(), {"id": "long", "at": new}), {"kind": "replace"})
    table.restart()

    late = table.apply(*({"id": key, "at": after[1]} for key in (1, 2, 3)))

    assert late.commit_info["stale"] == 2
    assert ids(table) == [3]


@pytest.mark.parametrize("kind", ["long", "double", "decimal(9,2)", "date", "timestamp", "boolean"])
def test_a_sequence_that_does_not_fit_another_type_is_the_newest(kind: str, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.string())])
    table = KeyedTable(tmp_path / "rows", schema, KeyRules(("id",), ("at",)))
    table.apply({"id": 1, "at": "later", "op": "delete"}, {"op": "truncate", "at": "earlier"})
    retype.run(table.open(), retype.plan(table.open(), {"at": kind}), {"kind": "replace"})

    found = Tombstones(table.rules, 3600.0, "shop", retyped).load(table.open()).of(pa.table({"id": [1]}))

    sequence = dict(zip(found["id"].to_pylist(), found["at"], strict=True))
    assert sequence[1].is_valid and not sequence[None].is_valid


def test_a_file_without_tombstones_is_read_once(table: KeyedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.apply(gone(1, 7, MONDAY))
    version = table.open().version
    table.apply(gone(2, 7, MONDAY))
    restore.run(table.open(), restore.plan(table.open(), version), {"kind": "restore"})
    table.table.refresh()
    table.apply(up(3, 7, MONDAY))
    monkeypatch.delattr(remembering, "read_segment")

    table.apply(up(1, 6, MONDAY))

    assert ids(table) == [3]


def as_written_before_hashes(folder: Path) -> None:
    """Turn files of tombstones into those that earlier releases wrote."""
    for path in folder.glob("_lakefeed/tombstones/*.parquet"):
        rows = pq.read_table(path)
        told = dict(rows.schema.metadata)
        for name in (b"lakefeed.keys", b"lakefeed.clocks", b"lakefeed.optional", b"lakefeed.replacing"):
            told.pop(name, None)
        chance = np.random.default_rng(1).permutation(rows.num_rows)
        rows = rows.drop_columns(["_lakefeed_key_hash"] if b"lakefeed.keys" in rows.schema.metadata else [])
        pq.write_table(rows.take(chance).replace_schema_metadata(told), path)


@pytest.mark.parametrize("held", [True, False])
def test_tombstones_of_earlier_releases_count_and_expire(
    held: bool, table: KeyedTable, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.apply(*(gone(number, 7, MONDAY) for number in range(20)), {"op": "truncate", "seq": 3})
    for number in range(20, 25):
        table.apply(gone(number, 7, MONDAY))
    as_written_before_hashes(Path(table.path))
    if not held:
        monkeypatch.setattr(remembering, "_HELD_BYTES", 0)
    table.restart()

    late = table.apply(
        *(up(number, 6, MONDAY) for number in range(25)), up(30, 2, MONDAY), gone(26, 7, MONDAY)
    )

    assert late.commit_info["stale"] == 26
    assert in_memory(table) == 27
    clock.now += 3 * DAY
    table.apply(gone(27, 7, clock.now))
    assert in_memory(table) == 1


@pytest.mark.usefixtures("little_memory")
def test_memory_holds_no_tombstones_but_those_of_the_keys_of_a_batch(tmp_path: Path) -> None:
    schema = SCHEMA.set(1, pa.field("seq", pa.string()))
    table = KeyedTable(tmp_path / "rows", schema, KeyRules(("id",), ("seq",)))
    for first in range(0, 6_000, 500):
        deletions = (gone(at, 0, MONDAY) | {"seq": f"{at:0200d}"} for at in range(first, first + 500))
        table.apply(*deletions)
    table.restart()
    before = pa.total_allocated_bytes()

    known = Tombstones(table.rules, 3600.0, "shop", retyped).load(table.table)
    found = known.of(pa.table({"id": [7, 5_999, 6_000]}))

    assert sorted(found.column("id").to_pylist()) == [7, 5_999]
    assert pa.total_allocated_bytes() - before < 100_000
