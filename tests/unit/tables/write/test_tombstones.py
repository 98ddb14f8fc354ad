"""Tombstones expire by the time of events as well: what is read late is not late."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefeed.tables.write.keyed.tombstones as remembering
from lakefeed import Pipeline
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
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
