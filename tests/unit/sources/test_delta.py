"""What the delta source reads, where it stops, and how it goes on."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import DataLoss, Pipeline, PipelineFileError, SourceError
from lakefeed.engine.inline import run_inline
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.sources import Allowance
from lakefeed.sources.delta.client import DeltaClient
from lakefeed.sources.delta.offset import MOST_ROWS, MOST_VERSIONS, DeltaOffset, version_start
from lakefeed.sources.delta.source import DeltaSource
from lakefeed.sources.delta.versions import versions_to_read
from support.delta_tables import clean_log
from support.ledger import table_ids
from support.vectors import allow, mark_everywhere


def append(table: Path, ids: Iterable[int], **columns: Any) -> None:
    numbers = list(ids)
    write_deltalake(table, pa.table({"event_id": numbers, **columns}), mode="append")


def copying(folder: Path, options: str = "", more: str = "", tables: str = "") -> Pipeline:
    file = folder / "copy.yaml"
    file.write_text(
        f"""\
name: copy
sources: {{orders: {{type: delta, path: orders{options}}}}}
tables:
  copied: {{path: copied, from: orders{more}}}
{tables}
"""
    )
    return Pipeline.from_file(file)


def copied(folder: Path, name: str = "copied") -> list[int]:
    return sorted(table_ids(folder / name))


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A table of three versions with ten rows each."""
    for first in (0, 10, 20):
        append(tmp_path / "orders", range(first, first + 10))
    return tmp_path / "orders"


def test_an_offset_is_a_number_that_grows_with_versions_and_rows() -> None:
    given = [
        DeltaOffset(False, 0),
        DeltaOffset(False, 7, 3),
        DeltaOffset(False, 8),
        version_start(0),
        DeltaOffset(True, 5, MOST_ROWS - 1),
        version_start(6),
        DeltaOffset(True, MOST_VERSIONS - 1, MOST_ROWS - 1),
    ]

    offsets = [each.number for each in given]

    assert offsets == sorted(offsets) and offsets[-1] == 2**63 - 1
    assert [DeltaOffset.of(offset) for offset in offsets] == given


def test_a_reader_goes_around_versions_that_a_restore_took_back() -> None:
    def versions(start: DeltaOffset, last: int, restores: dict[int, int]) -> list[int] | None:
        found = versions_to_read(start, last, restores)
        return None if found.stopped_by is not None else list(found)

    assert versions(version_start(2), 5, {}) == [2, 3, 4, 5]
    assert versions(version_start(2), 9, {7: 3}) == [2, 3, 8, 9]
    assert versions(version_start(4), 9, {7: 3}) == [8, 9]
    assert versions(DeltaOffset(True, 4, 1), 9, {7: 3}) is None
    assert versions(version_start(5), 9, {7: 3}) is None
    assert versions(DeltaOffset(False, 3, 5), 9, {7: 3}) == [8, 9]
    assert versions(DeltaOffset(False, 4, 5), 9, {7: 3}) is None
    assert versions(version_start(8), 9, {7: 3}) == [8, 9]
    assert versions(version_start(4), 9, {6: 3, 9: 4}) == [4]
    assert versions(version_start(7), 9, {6: 3, 9: 4}) is None


def test_a_file_larger_than_a_batch_is_read_in_parts(tmp_path: Path) -> None:
    append(tmp_path / "orders", range(1000))
    pipeline = copying(tmp_path, ", flush: {rows: 300}")

    run_inline(pipeline)

    assert copied(tmp_path) == list(range(1000))
    assert DeltaTable(tmp_path / "copied").version() == 4


def test_compaction_is_no_news(orders: Path, tmp_path: Path) -> None:
    run_inline(copying(tmp_path))
    DeltaTable(orders).optimize.compact()
    append(orders, range(30, 40))
    run_inline(copying(tmp_path))

    assert copied(tmp_path) == list(range(40))


@pytest.mark.parametrize(("where", "option"), [(None, "ignore_deletes"), ("event_id = 5", "ignore_changes")])
def test_a_version_that_takes_rows_away_stops_and_names_the_ways_on(
    orders: Path, tmp_path: Path, where: str | None, option: str
) -> None:
    run_inline(copying(tmp_path))
    append(orders, range(30, 40))
    DeltaTable(orders).delete(where)
    append(orders, range(40, 50))

    with pytest.raises(SourceError, match=rf"version 4 of .*orders \(DELETE\)[^§]*`{option}: true`"):
        run_inline(copying(tmp_path))
    assert copied(tmp_path) == list(range(40))

    run_inline(copying(tmp_path, f", {option}: true"))
    again = [one for one in range(10) if one != 5] if where else []
    assert copied(tmp_path) == sorted([*range(50), *again])


def test_a_rewound_table_is_read_on_by_who_has_read_nothing_of_it(orders: Path, tmp_path: Path) -> None:
    run_inline(copying(tmp_path, ", start: {version: 0}", tables="  late: {path: late, from: orders}"))
    append(orders, range(30, 40))
    append(orders, range(40, 50))
    DeltaTable(orders).restore(2)
    append(orders, range(50, 60))
    run_inline(copying(tmp_path, ", start: {version: 0}", tables="  late: {path: late, from: orders}"))

    assert copied(tmp_path) == copied(tmp_path, "late") == [*range(30), *range(50, 60)]
    assert verify(copying(tmp_path)).sound


def test_a_rewound_table_stops_who_has_read_what_was_taken_back(orders: Path, tmp_path: Path) -> None:
    run_inline(copying(tmp_path, ", start: {version: 0}"))
    DeltaTable(orders).restore(1)
    append(orders, range(50, 60))

    with pytest.raises(SourceError, match=r"version 3 .RESTORE. .* back to version 1[^§]*lakefeed rewind"):
        run_inline(copying(tmp_path))
    assert copied(tmp_path) == list(range(30))


def test_a_table_made_anew_is_not_read_as_the_old_one(orders: Path, tmp_path: Path) -> None:
    run_inline(copying(tmp_path))
    shutil.rmtree(orders)
    for first in range(0, 50, 10):
        append(orders, range(first, first + 10))

    with pytest.raises(DataLoss, match=r"another table lies at .*: it was deleted and made anew"):
        run_inline(copying(tmp_path))
    assert copied(tmp_path) == list(range(30))


def test_a_log_cleaned_past_the_reader_is_told_and_skipped_only_on_demand(
    orders: Path, tmp_path: Path
) -> None:
    run_inline(copying(tmp_path))
    for first in (30, 40, 50):
        append(orders, range(first, first + 10))
    DeltaTable(orders).create_checkpoint()
    for version in (0, 1, 2, 3, 4):
        (orders / "_delta_log" / f"{version:020d}.json").unlink()

    with pytest.raises(DataLoss, match=r"version 3 comes next, .* no longer has versions 3 to 4"):
        run_inline(copying(tmp_path))
    run_inline(copying(tmp_path, ", on_data_loss: skip"))

    assert copied(tmp_path) == [*range(30), *range(50, 60)]


def test_a_vacuumed_file_is_told(orders: Path, tmp_path: Path) -> None:
    run_inline(copying(tmp_path))
    append(orders, range(30, 40))
    DeltaTable(orders).optimize.compact()
    DeltaTable(orders).vacuum(0, dry_run=False, enforce_retention_duration=False)

    with pytest.raises(DataLoss, match="of version 3 is gone: a vacuum has removed it"):
        run_inline(copying(tmp_path))


def test_tables_that_read_different_snapshots_are_read_apart_and_come_together(
    orders: Path, tmp_path: Path
) -> None:
    first = copying(tmp_path, ", flush: {rows: 7}")
    run_inline(first)
    for number in range(30, 60, 10):
        append(orders, range(number, number + 10))
    both = copying(tmp_path, ", flush: {rows: 7}", tables="  late: {path: late, from: orders}")
    run_inline(both)
    append(orders, range(60, 70))
    run_inline(both)

    assert copied(tmp_path) == copied(tmp_path, "late") == list(range(70))
    assert verify(both).sound


def test_rows_that_a_deletion_vector_deletes_are_left_out(tmp_path: Path) -> None:
    append(tmp_path / "orders", range(30))
    allow(tmp_path / "orders")
    mark_everywhere(tmp_path / "orders", [0, 7, 8, 29])
    pipeline = copying(tmp_path, ", flush: {rows: 8}")
    (told,) = status(pipeline).tables

    run_inline(pipeline)

    assert told.lag == 26
    assert copied(tmp_path) == [one for one in range(30) if one not in (0, 7, 8, 29)]
    (found,) = verify(pipeline).tables
    assert found.notes == [
        "orders/0: the snapshot of version 2 up to version 3: all 26 rows that orders has there"
    ]


def test_rows_deleted_in_a_vector_stop_the_source(tmp_path: Path) -> None:
    append(tmp_path / "orders", range(30))
    allow(tmp_path / "orders")
    run_inline(copying(tmp_path))
    mark_everywhere(tmp_path / "orders", [3])

    with pytest.raises(SourceError, match=r"version 2 of .* changes or deletes rows that were read"):
        run_inline(copying(tmp_path))


def test_older_files_lack_newer_columns_also_inside_of_structs(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    append(orders, [1, 2], who=[{"name": "a"}, None])
    write_deltalake(
        orders,
        pa.table({"event_id": [3], "who": [{"name": "c", "age": 7}], "tags": [["x"]]}),
        mode="append",
        schema_mode="merge",
    )
    run_inline(copying(tmp_path))

    rows = sorted(DeltaTable(tmp_path / "copied").to_pyarrow_table().to_pylist(), key=lambda r: r["event_id"])
    assert rows == [
        {"event_id": 1, "who": {"name": "a", "age": None}, "tags": None},
        {"event_id": 2, "who": None, "tags": None},
        {"event_id": 3, "who": {"name": "c", "age": 7}, "tags": ["x"]},
    ]


def test_partition_values_have_their_types(tmp_path: Path) -> None:
    days = [dt.date(2026, 11, 16), None, dt.date(2026, 11, 17)]
    moments = [dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)] * 3
    table = pa.table({"event_id": [1, 2, 3], "day": days, "at": pa.array(moments, pa.timestamp("us", "UTC"))})
    write_deltalake(tmp_path / "orders", table, partition_by=["day", "at"])
    run_inline(copying(tmp_path))

    found = DeltaTable(tmp_path / "copied").to_pyarrow_table().sort_by("event_id")
    assert found.select(table.column_names) == table


def test_int96_timestamps_are_utc(tmp_path: Path) -> None:
    moment = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)
    table = pa.table({"event_id": [1], "at": pa.array([moment], pa.timestamp("us", "UTC"))})
    write_deltalake(tmp_path / "orders", table)
    (file,) = (tmp_path / "orders").glob("*.parquet")
    pq.write_table(table, file, use_deprecated_int96_timestamps=True)
    run_inline(copying(tmp_path))

    assert DeltaTable(tmp_path / "copied").to_pyarrow_table().to_pylist() == [{"event_id": 1, "at": moment}]


def test_rows_are_counted_by_footers_where_the_log_has_no_statistics(orders: Path, tmp_path: Path) -> None:
    for entry in (orders / "_delta_log").glob("*.json"):
        text = entry.read_text()
        at = text.find('"stats":"')
        end = text.find('}"', at) + 2
        entry.write_text(text[:at] + '"stats":null' + text[end:])
    (told,) = status(copying(tmp_path)).tables
    run_inline(copying(tmp_path))

    assert told.lag == 30
    assert copied(tmp_path) == list(range(30))


def test_a_path_without_a_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"source orders: there is no Delta table at .*orders"):
        run_inline(copying(tmp_path))


def test_a_format_is_refused_as_the_table_has_columns(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="the table has columns already"):
        copying(tmp_path, ", format: json")


@pytest.mark.parametrize("feed", [False, True])
def test_a_position_moves_on_over_versions_without_rows_before_the_log_forgets_them(
    orders: Path, tmp_path: Path, feed: bool
) -> None:
    DeltaTable(orders).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    options = ", change_feed: true" if feed else ""
    run_inline(copying(tmp_path, options))
    DeltaTable(orders).optimize.compact()
    DeltaTable(orders).vacuum(0, dry_run=False, enforce_retention_duration=False)
    run_inline(copying(tmp_path, options))
    newest = clean_log(orders)

    found = status(copying(tmp_path, options)).tables[0].offsets["orders"]["0"]
    assert found.next_place == f"version {newest + 1}" and newest > 4
    append(orders, range(30, 40))
    run_inline(copying(tmp_path, options))

    assert copied(tmp_path) == list(range(40))
    assert not verify(copying(tmp_path, options)).tables[0].findings


def test_a_position_stays_before_the_first_version_that_has_rows_or_stops(orders: Path) -> None:
    for first in (30, 40):
        DeltaTable(orders).optimize.compact()
        append(orders, range(first, first + 10))
    DeltaTable(orders).delete("event_id = 5")
    client = DeltaClient(DeltaSource(path=str(orders)), "orders")

    def passed(at: DeltaOffset) -> str:
        return str(DeltaOffset.of(client.pass_over({"0": at.number})["0"]))

    client.check({"0": version_start(2).number}, {})
    assert passed(DeltaOffset(False, 2)) == "the snapshot of version 2"
    assert passed(version_start(2)) == "version 2"
    assert passed(version_start(3)) == passed(version_start(4)) == "version 4"
    assert passed(DeltaOffset(True, 4, 3)) == "version 4, row 3"
    assert passed(version_start(5)) == "version 6"
    assert passed(version_start(7)) == "version 7"


def test_behind_a_snapshot_comes_no_version_that_it_has(orders: Path) -> None:
    client = DeltaClient(DeltaSource(path=str(orders)), "orders")
    start = client.start()
    before = {"0": version_start(1).number}

    end = client.next_end(start, before, Allowance(1000, 10**9))

    assert str(DeltaOffset.of(end["0"])) == "version 3"


def test_a_vacuumed_file_that_nobody_has_counted_is_told(orders: Path) -> None:
    for entry in sorted((orders / "_delta_log").glob("*.json")):
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            line.get("add", {}).pop("stats", None)
        entry.write_text("\n".join(map(json.dumps, lines)))
    next(orders.glob("*.parquet")).unlink()

    with pytest.raises(SourceError, match="is gone, and the log does not say how many rows"):
        DeltaClient(DeltaSource(path=str(orders)), "orders").start()


def ask_of_readers(table: Path, version: int, *features: str) -> None:
    """One more version, which asks readers of the table for more."""
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    asked = {"readerFeatures": list(features), "writerFeatures": list(features)}
    entry = table / "_delta_log" / f"{version:020d}.json"
    entry.write_text(json.dumps({"protocol": protocol | asked}) + "\n")


def test_a_feature_that_nobody_here_knows_is_refused_by_name_when_it_comes(
    orders: Path, tmp_path: Path
) -> None:
    run_inline(copying(tmp_path))
    ask_of_readers(orders, 3, "deletionVectors", "catalogManaged", "variantType-preview", "newThing")
    told = r"version 3 of the table asks its readers for catalogManaged and newThing, which only .*[^§]*"
    told += rf"{{type: spark, format: delta, options: {{path: {re.escape(str(orders))}}}}}"

    for options in ("", ", change_feed: true", ", start: latest"):
        with pytest.raises(SourceError, match=told):
            run_inline(copying(tmp_path, options))
    assert copied(tmp_path) == list(range(30))
    (planned,) = plan_run(copying(tmp_path)).tables
    assert re.search(told, str(planned))


def test_features_are_known_from_a_checkpoint_too(orders: Path) -> None:
    ask_of_readers(orders, 3, "deletionVectors")
    append(orders, [30])
    clean_log(orders)
    client = DeltaClient(DeltaSource(path=str(orders)), "orders")
    assert client.rows_between(client.start(), client.latest()) == {"0": 31}

    (checkpoint,) = (orders / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(checkpoint)
    told = [one and one | {"readerFeatures": ["newThing"]} for one in rows.column("protocol").to_pylist()]
    at = rows.schema.get_field_index("protocol")
    pq.write_table(rows.set_column(at, "protocol", pa.array(told, rows.schema.field(at).type)), checkpoint)

    with pytest.raises(SourceError, match="version 4 of the table asks its readers for newThing"):
        DeltaClient(DeltaSource(path=str(orders)), "orders").start()
