"""Compaction and clustering: fewer files, the same rows, nothing to do the second time."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import threading
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties, write_deltalake

from lakefeed.errors import Conflict, UsageError
from lakefeed.tables.data_files import data_files
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.rewrite import compact as compaction
from lakefeed.tables.rewrite import z_order
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import content, ids, open_any, write_table

INFO = operation_info("compact", by="command", reason="too many files")


def actions(path: Path, version: int, kind: str) -> list[dict[str, object]]:
    text = (path / "_delta_log" / f"{version:020d}.json").read_text()
    return [json.loads(line)[kind] for line in text.splitlines() if line.startswith(f'{{"{kind}"')]


def days(number: int) -> dict[str, list[object]]:
    return {"id": [number * 2, number * 2 + 1], "day": ["2026-11-01", "2026-11-02"]}


def test_compaction_keeps_every_row_and_says_that_it_changes_no_data(tmp_path: Path) -> None:
    table = write_table(tmp_path, [days(number) for number in range(5)], partition_by=["day"])
    before = content(tmp_path)

    plan = compaction.plan(table)
    report = compaction.run(table, plan, INFO, file_writer)

    assert [dict(step.partition) for step in plan.steps] == [{"day": "2026-11-01"}, {"day": "2026-11-02"}]
    assert (plan.before.files, plan.before.rows, plan.expected_files) == (10, 10, 2)
    assert (report.before.files, report.after.files, report.after.rows) == (10, 2, 10)
    assert report.versions == (5, 6)
    assert content(tmp_path) == before
    for version in report.versions:
        changed = [*actions(tmp_path, version, "add"), *actions(tmp_path, version, "remove")]
        assert len(changed) == 6
        assert {action["dataChange"] for action in changed} == {False}
        told = json.loads(str(actions(tmp_path, version, "commitInfo")[0]["lakefeed"]))
        assert (told["kind"], told["by"], told["reason"]) == ("compact", "command", "too many files")


def test_a_column_of_type_void_stays_out_of_files_and_null_for_every_reader(tmp_path: Path) -> None:
    write_table(tmp_path, [days(number) for number in range(3)])
    entry = tmp_path / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            columns = json.loads(line["metaData"]["schemaString"])
            columns["fields"].append({"name": "v", "type": "void", "nullable": True, "metadata": {}})
            line["metaData"]["schemaString"] = json.dumps(columns)
    entry.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = open_any(tmp_path)

    report = compaction.run(table, compaction.plan(table), INFO, file_writer)

    assert (report.before.files, report.after.files, report.after.rows) == (3, 1, 6)
    expected = [{"id": one, "day": f"2026-11-0{one % 2 + 1}", "v": None} for one in range(6)]
    assert pl.read_delta(str(tmp_path)).sort("id").to_dicts() == expected
    assert DeltaTable(tmp_path).to_pyarrow_table().sort_by("id").to_pylist() == expected


def test_second_compaction_finds_nothing_to_do_and_commits_nothing(tmp_path: Path) -> None:
    table = write_table(tmp_path, [days(number) for number in range(3)])
    compaction.run(table, compaction.plan(table), INFO, file_writer)
    version = table.version

    plan = compaction.plan(table)
    report = compaction.run(table, plan, INFO, file_writer)

    assert plan.steps == ()
    assert report.versions == ()
    assert DeltaTable(tmp_path).version() == version


def test_where_takes_partitions_and_leaves_the_others(tmp_path: Path) -> None:
    table = write_table(tmp_path, [days(number) for number in range(3)], partition_by=["day"])

    compaction.run(table, compaction.plan(table, where="day = '2026-11-02'"), INFO, file_writer)

    left = {dict(file.partition)["day"]: 0 for file in data_files(table)}
    for file in data_files(table):
        left[dict(file.partition)["day"]] += 1
    assert left == {"2026-11-01": 3, "2026-11-02": 1}


def test_where_on_another_column_is_refused_in_words(tmp_path: Path) -> None:
    table = write_table(tmp_path, [days(0)], partition_by=["day"])

    with pytest.raises(UsageError, match=r"only partition columns count here; .* has day\."):
        compaction.plan(table, where="id > 3 AND day = 'id'")
    with pytest.raises(UsageError, match="cannot be read"):
        compaction.plan(table, where="day ==== ")


@pytest.mark.parametrize(
    "values",
    [
        ["a b/ü%=x", None],
        [dt.date(2026, 11, 1), None],
        [dt.datetime(2026, 11, 1, 12, 30, tzinfo=dt.UTC), None],
        [Decimal("1.50"), Decimal("2.25")],
        [True, False],
        [1.5, -2.0],
        [7, -7],
    ],
    ids=lambda values: type(values[0]).__name__,
)
def test_partitions_of_every_type_are_found_again(tmp_path: Path, values: list[object]) -> None:
    batches = [{"id": [number, number + 10], "p": values} for number in range(3)]
    table = write_table(tmp_path, batches, partition_by=["p"])
    before = content(tmp_path)

    report = compaction.run(table, compaction.plan(table), INFO, file_writer)

    assert report.after.files == 2
    assert content(tmp_path) == before


def test_min_size_leaves_partitions_without_two_smaller_files(tmp_path: Path) -> None:
    table = write_table(tmp_path, [days(number) for number in range(3)])
    sizes = [file.size for file in data_files(table)]

    assert compaction.plan(table, min_size=min(sizes)).steps == ()
    assert len(compaction.plan(table, min_size=max(sizes) + 1).steps) == 1
    assert compaction.plan(table, min_files=4).steps == ()


def test_target_size_comes_from_the_table_and_bounds_the_files(tmp_path: Path) -> None:
    noise = [{"id": [number * 2_654_435_761 % 2**40 for number in range(at, at + 2_000)]} for at in range(12)]
    table = write_table(tmp_path, noise, properties={"delta.targetFileSize": "60kb"})
    sizes = [file.size for file in data_files(table)]

    plan = compaction.plan(table)
    report = compaction.run(table, plan, INFO, file_writer)

    assert (plan.target_size, plan.expected_files) == (60 * 1024, -(-sum(sizes) // (60 * 1024)))
    assert 1 < report.after.files < 12
    full = sorted(file.size for file in data_files(table))[1:]
    assert all(30 * 1024 < size < 120 * 1024 for size in full)
    assert compaction.plan(table).steps == ()


def test_files_keep_their_compression(tmp_path: Path) -> None:
    gzip = WriterProperties(compression="GZIP")
    for number in range(2):
        write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append", writer_properties=gzip)
    table = open_any(tmp_path)

    compaction.run(table, compaction.plan(table), INFO, file_writer)

    (file,) = data_files(table)
    assert pq.ParquetFile(tmp_path / file.path).metadata.row_group(0).column(0).compression == "GZIP"


def test_positions_survive_compaction_and_a_checkpoint(tmp_path: Path) -> None:
    table = write_table(tmp_path, [days(number) for number in range(3)], positions="shop/clicks/0")

    compaction.run(table, compaction.plan(table), INFO, file_writer)
    table.delta.create_checkpoint()

    assert table.transactions == {"shop/clicks/0": 2}
    assert open_any(tmp_path).transactions == {"shop/clicks/0": 2}


def test_rows_appended_meanwhile_stay(tmp_path: Path) -> None:
    table = write_table(tmp_path, [days(number) for number in range(3)])
    plan = compaction.plan(table)
    write_deltalake(tmp_path, pa.table({"id": [100], "day": ["x"]}), mode="append")

    compaction.run(table, plan, INFO, file_writer)

    assert ids(tmp_path) == [0, 1, 2, 3, 4, 5, 100]


def test_of_two_compactions_at_once_one_gives_way_and_no_row_doubles(tmp_path: Path) -> None:
    write_table(tmp_path, [days(number) for number in range(30)])
    barrier, outcomes = threading.Barrier(4), []

    def compact() -> None:
        table = open_any(tmp_path)
        plan = compaction.plan(table)
        barrier.wait()
        try:
            compaction.run(table, plan, INFO, file_writer)
            outcomes.append("done")
        except Conflict as error:
            assert "nothing was committed.\nRun it again." in str(error)
            outcomes.append("gave way")

    threads = [threading.Thread(target=compact) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert "done" in outcomes
    assert ids(tmp_path) == list(range(60))


def test_z_order_brings_near_rows_into_the_same_files_and_is_done_once(tmp_path: Path) -> None:
    batches = [
        {"id": list(range(at, 8_000, 4)), "x": [number % 89 for number in range(2_000)]} for at in range(4)
    ]
    table = write_table(tmp_path, batches, positions="shop/clicks/0")
    before = content(tmp_path)

    plan = z_order.plan(table, ["id"], target_size=4_000)
    report = z_order.run(table, plan, operation_info("cluster", by="command"), file_writer)
    after = content(tmp_path)
    again = z_order.plan(table, ["id"], target_size=4_000)
    otherwise = z_order.plan(table, ["x"], target_size=4_000)
    write_deltalake(tmp_path, pa.table({"id": [9_000], "x": [1]}), mode="append")
    table.refresh()
    after_append = z_order.plan(table, ["id"])

    assert len(plan.steps) == 1
    assert report.after.rows == 8_000
    assert after == before
    assert ids(tmp_path) == [*range(8_000), 9_000]
    assert {action["dataChange"] for action in actions(tmp_path, 4, "add")} == {False}
    assert again.steps == ()
    assert len(otherwise.steps) == 1
    assert [step.unclustered.files for step in after_append.steps] == [1]
    assert table.transactions == {"shop/clicks/0": 3}
    stats = [json.loads(str(action["stats"])) for action in actions(tmp_path, 4, "add")]
    spans = sorted((one["minValues"]["id"], one["maxValues"]["id"]) for one in stats)
    assert len(spans) > 1
    assert all(low[1] < high[0] for low, high in itertools.pairwise(spans))


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("idd", "has no column 'idd', did you mean 'id'?"),
        ("day", "'day' is a partition column"),
        ("tags", "which has no order"),
    ],
)
def test_z_order_by_a_wrong_column_is_refused(tmp_path: Path, column: str, told: str) -> None:
    table = write_table(tmp_path, [{"id": [1], "day": ["a"], "tags": [["x"]]}], partition_by=["day"])

    with pytest.raises(UsageError) as refused:
        z_order.plan(table, [column])

    assert told in str(refused.value)
