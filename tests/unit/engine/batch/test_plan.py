from __future__ import annotations

import pyarrow as pa

from lakefeed.engine.batch.plan import FlowPlan, splits
from lakefeed.events import OffsetRange, Offsets, Split
from lakefeed.formats.json.format import JsonFormat
from lakefeed.handles.table_plan import TablePlan
from lakefeed.sources.generate.source import GenerateClient, GenerateSource


def table(name: str, rows_from: Offsets) -> TablePlan:
    return TablePlan(
        name=name,
        path=name,
        storage={},
        columns=pa.schema([("id", pa.int64())]),
        target=None,
        partition_by=(),
        metadata=False,
        rows_from=rows_from,
    )


def plan(*tables: TablePlan) -> FlowPlan:
    return FlowPlan("shop", "clicks", GenerateSource(), JsonFormat(), tables, "letters", {})


def split(start: Offsets, end: Offsets, made: FlowPlan) -> list[Split]:
    return splits(GenerateClient(GenerateSource(), "clicks"), start, end, made, cores=2)


def test_small_batch_is_one_task_over_all_partitions() -> None:
    tasks = split({"0": 0, "1": 5}, {"0": 10, "1": 6}, plan(table("a", {"0": 0, "1": 5})))

    assert tasks == [(OffsetRange("0", 0, 10), OffsetRange("1", 5, 6))]


def test_large_batch_is_split_evenly_also_within_a_partition() -> None:
    tasks = split({"0": 0, "1": 0}, {"0": 300_000, "1": 100_000}, plan(table("a", {"0": 0, "1": 0})))

    assert tasks == [
        (OffsetRange("0", 0, 200_000),),
        (OffsetRange("0", 200_000, 300_000), OffsetRange("1", 0, 100_000)),
    ]


def test_ranges_that_other_tables_take_are_tasks_of_their_own() -> None:
    ahead, behind = table("ahead", {"0": 100, "1": 0}), table("behind", {"0": 50, "1": 0})

    tasks = split({"0": 50, "1": 0}, {"0": 100, "1": 10}, plan(ahead, behind))

    assert tasks == [(OffsetRange("0", 50, 100),), (OffsetRange("1", 0, 10),)]


def test_batch_ends_where_a_table_that_is_ahead_begins_to_take_part() -> None:
    ahead, behind = table("ahead", {"0": 100}), table("behind", {"0": 50})
    made = plan(ahead, behind)

    first = made.cut({"0": 50}, {"0": 500})
    second = made.cut(first, {"0": 500})

    assert (first, second) == ({"0": 100}, {"0": 500})


def test_empty_partitions_make_no_task() -> None:
    assert split({"0": 5}, {"0": 5}, plan(table("a", {"0": 0}))) == []
