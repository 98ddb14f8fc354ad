"""The options of the delta source, each with what it changes."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import PipelineFileError, SourceError
from lakefeed.engine.inline import run_inline
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.sources import Allowance
from lakefeed.sources.delta.client import DeltaClient
from lakefeed.sources.delta.offset import DeltaOffset
from lakefeed.sources.delta.source import DeltaSource
from support.delta_tables import age_log
from unit.sources.test_delta import append, copied, copying, orders

__all__ = ["orders"]


def test_rows_come_in_batches_that_keep_to_rows_and_to_files(orders: Path, tmp_path: Path) -> None:
    client = DeltaClient(DeltaSource(path=str(orders), start={"version": 0}, max_files=1), "orders")
    at, ends, seen = client.start(), client.latest(), []

    while at != ends:
        rows = client.rows_between(at, ends)["0"]
        at = client.next_end(at, ends, Allowance(4 if rows > 20 else 1000, 10**9))
        seen.append((rows, str(DeltaOffset.of(at["0"]))))

    assert seen == [
        (30, "version 0, row 4"), (26, "version 0, row 8"), (22, "version 1"), (20, "version 2"),
        (10, "version 3"),
    ]  # fmt: skip


def test_a_batch_keeps_to_bytes_and_what_waits_is_told_in_files_and_bytes(orders: Path) -> None:
    client = DeltaClient(DeltaSource(path=str(orders), start={"version": 0}), "orders")
    at, ends, seen = client.start(), client.latest(), []
    size = next(orders.glob("*.parquet")).stat().st_size

    while at != ends:
        waits = client.outstanding(at, ends)
        at = client.next_end(at, ends, Allowance(10**6, 2 * size + 50))
        seen.append((waits.files, round(waits.bytes / size), str(DeltaOffset.of(at["0"]))))

    assert seen == [(3, 3, "version 2"), (1, 1, "version 3")]


def test_start_may_be_a_version_or_a_time_or_latest(orders: Path, tmp_path: Path) -> None:
    moments = [one["timestamp"] for one in reversed(DeltaTable(orders).history())]
    moment = dt.datetime.fromtimestamp(moments[2] / 1000, dt.UTC).isoformat()
    for name, start in [("v", "{version: 1}"), ("t", f"'{moment}'"), ("l", "latest")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "orders").symlink_to(orders)
        run_inline(copying(tmp_path / name, f", start: {start}", ", schema: {event_id: long}"))
    append(orders, range(30, 40))
    for name, start in [("v", "{version: 1}"), ("t", f"'{moment}'"), ("l", "latest")]:
        run_inline(copying(tmp_path / name, f", start: {start}", ", schema: {event_id: long}"))

    assert copied(tmp_path / "v") == list(range(10, 40))
    assert copied(tmp_path / "t") == list(range(20, 40))
    assert copied(tmp_path / "l") == list(range(30, 40))


def test_start_at_a_version_that_is_not_there_is_refused(orders: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"`start` names version 9, but the newest version of .* is 2"):
        run_inline(copying(tmp_path, ", start: {version: 9}"))


def test_ignoring_deletes_does_not_ignore_changes(orders: Path, tmp_path: Path) -> None:
    run_inline(copying(tmp_path))
    DeltaTable(orders).update({"event_id": "77"}, predicate="event_id = 7")

    with pytest.raises(SourceError, match=r"version 3 of .*orders \(UPDATE\) changes or deletes rows"):
        run_inline(copying(tmp_path, ", ignore_deletes: true"))


def test_plan_warns_where_the_log_is_kept_for_less_than_a_table_is_behind(
    orders: Path, tmp_path: Path
) -> None:
    run_inline(copying(tmp_path))
    properties = {"delta.logRetentionDuration": "interval 4 days"}
    DeltaTable(orders).alter.set_table_properties(properties)
    append(orders, range(30, 40))

    def told() -> list[str]:
        return [text for text in plan_run(copying(tmp_path)).tables[0].warnings if "behind by" in text]

    assert not told()
    age_log(orders, 5)
    assert any("orders: the table is behind by 5d, and its log is kept for 4d" in text for text in told())


def test_an_order_of_events_without_a_first_snapshot_is_refused(orders: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="event_time_order has an effect only with `start: earliest`"):
        copying(tmp_path, ", start: latest, event_time_order: event_id")


def test_the_first_snapshot_may_come_in_the_order_of_event_times(tmp_path: Path) -> None:
    days = [3, 1, 2]
    for day in days:
        moments = [dt.datetime(2026, 11, day, hour, tzinfo=dt.UTC) for hour in range(5)]
        append(tmp_path / "orders", [day * 10 + hour for hour in range(5)], at=moments)
    pipeline = copying(tmp_path, ", event_time_order: at, max_files: 1")
    run_inline(pipeline)

    table = DeltaTable(tmp_path / "copied")
    entries = sorted((tmp_path / "copied" / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
    came = [action["add"]["stats"] for action in actions if "add" in action]
    assert [json.loads(stats)["minValues"]["event_id"] for stats in came] == [10, 20, 30]
    assert table.to_pyarrow_table().num_rows == 15 and verify(pipeline).sound


def test_another_order_in_the_middle_of_a_snapshot_is_refused(orders: Path) -> None:
    source = DeltaSource(path=str(orders), event_time_order="event_id")
    client, plain = DeltaClient(source, "orders"), DeltaClient(DeltaSource(path=str(orders)), "orders")
    at = client.next_end(client.start(), client.latest(), Allowance(4, 10**9))

    with pytest.raises(
        SourceError, match="`event_time_order` was changed while the snapshot of version 2, row 4"
    ):
        plain.check(at, client.marks())
    assert client.check(at, client.marks()) == at


@pytest.mark.parametrize(
    ("column", "message"), [("event_id2", "there is no column event_id2, did you mean"), ("tags", "no order")]
)
def test_a_column_without_an_order_in_time_is_refused(orders: Path, column: str, message: str) -> None:
    write_deltalake(orders, pa.table({"event_id": [1], "tags": [["a"]]}), mode="append", schema_mode="merge")

    with pytest.raises(SourceError, match=message):
        DeltaClient(DeltaSource(path=str(orders), event_time_order=column), "orders").start()


def test_files_whose_paths_are_excluded_are_not_read(tmp_path: Path) -> None:
    for region in ("eu", "test"):
        rows = pa.table({"event_id": [1, 2], "region": [region] * 2})
        write_deltalake(tmp_path / "orders", rows, mode="append", partition_by=["region"])
    pipeline = copying(tmp_path, ", exclude: '^region=test/'")
    run_inline(pipeline)

    assert copied(tmp_path) == [1, 2]
    assert verify(pipeline).sound
