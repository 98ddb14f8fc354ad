"""A task in two halves: what passes between them, and what comes of a half that does not come to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefeed import Pipeline
from lakefeed.columns.column_types import declared_schema
from lakefeed.engine.batch.manifest import Manifest
from lakefeed.engine.batch.plan import FlowPlan, format_of
from lakefeed.engine.task.carried import EVENT_ORIGIN, KEPT, NOTE, PAYLOAD, REASON, CarriedEvents
from lakefeed.engine.task.halves import read_half, write_half
from lakefeed.errors import Defect
from lakefeed.events import OffsetRange, origin_of
from lakefeed.files.names import Serial
from lakefeed.files.parquet import FileTarget
from lakefeed.formats import Rules
from lakefeed.handles.table_plan import TableId, TablePlan
from lakefeed.pipeline.options.metadata import MetadataColumns
from lakefeed.sources import source_of
from lakefeed.sql.expression import Call, Column
from lakefeed.sql.projection import Item, Projection

EVENTS = declared_schema({"event_id": "long", "brand": "string"})
RANGES = [OffsetRange("0", 0, 60), OffsetRange("1", 0, 40)]


@pytest.fixture
def plan(tmp_path: Path) -> FlowPlan:
    pipeline = Pipeline.model_validate(
        {
            "name": "shop",
            "sources": {"clicks": {"type": "generate", "rows": 200, "partitions": 2, "bad_ratio": 0.1}},
            "tables": {"events": {"path": str(tmp_path / "events"), "from": "clicks"}},
        }
    )
    turned = Call(pa.string(), "Reverse", "reverse", (Column(pa.string(), "brand"),))
    even = Call(pa.bool_(), "EqualTo", "=", (Column(pa.int64(), "event_id"),))
    items = (
        Item("event_id", "event_id", Column(pa.int64(), "event_id")),
        Item("brand", "reverse(brand)", turned),
    )
    table = TablePlan(
        name="events",
        path=str(tmp_path / "events"),
        storage={},
        columns=EVENTS,
        target=FileTarget(EVENTS),
        partition_by=(),
        metadata=MetadataColumns(),
        rows_from={"0": 0, "1": 0},
        rules=Rules(new_column="ignore"),
        events=EVENTS,
        projection=Projection(
            EVENTS, EVENTS, even, "event_id % 2 = 0", items, (), "reverse is Spark's alone"
        ),
    )
    source = source_of(pipeline, "clicks")
    letters = str(tmp_path / "letters")
    return FlowPlan("shop", "clicks", source, format_of(source), (table,), letters, {})


def read(plan: FlowPlan, ranges: Sequence[OffsetRange] = RANGES) -> list[pa.RecordBatch]:
    return list(read_half(plan, ["event_id", "brand"], ranges, Serial(7, 3)))


def as_spark(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What Spark's operators make of the events: rows with an id of seven throw, even ones are kept."""
    for batch in batches:
        ids = batch.column("event_id").to_pylist()
        threw = [one is not None and one % 10 == 7 for one in ids]
        kept = [
            None if bad else one is not None and one % 2 == 0 for one, bad in zip(ids, threw, strict=True)
        ]
        turned = [None if text is None else text[::-1] for text in batch.column("brand").to_pylist()]
        reasons = ["[CAST_INVALID_INPUT] No number. SQLSTATE: 22018" if bad else None for bad in threw]
        yield pa.record_batch(
            {
                "event_id": pa.array(
                    [one if keep else None for one, keep in zip(ids, kept, strict=True)], pa.int64()
                ),
                "brand": pa.array(turned, pa.string()),
                KEPT: pa.array(kept, pa.bool_()),
                REASON: pa.array(reasons, pa.string()),
                PAYLOAD: batch.column(PAYLOAD),
                EVENT_ORIGIN: batch.column(EVENT_ORIGIN),
                NOTE: batch.column(NOTE),
            }
        )


def written(plan: FlowPlan, batches: Sequence[pa.RecordBatch]) -> Manifest:
    manifest = write_half(plan, as_spark(batches))
    assert manifest is not None
    return Manifest.from_json(manifest.to_json())


def test_one_manifest_tells_what_both_halves_did(plan: FlowPlan, tmp_path: Path) -> None:
    manifest = written(plan, read(plan))

    table = manifest.tables[TableId("events")]
    assert manifest.ranges == RANGES
    assert manifest.read == {"0": 60, "1": 40}
    landed = pq.read_table(tmp_path / "events")
    assert table.rows == landed.num_rows
    assert not any(number % 2 for number in landed.column("event_id").to_pylist())
    dead, filtered = sum(table.dead_letters.values()), sum(table.filtered.values())
    assert table.rows + dead + filtered == 100
    assert set(table.refusals) == {"decode/bad_json", "select/CAST_INVALID_INPUT"}


def test_events_that_are_cut_into_other_batches_by_spark_are_the_same_rows(plan: FlowPlan) -> None:
    whole = pa.Table.from_batches(read(plan)).combine_chunks()
    pieces = [one for batch in whole.to_batches() for one in [batch.slice(0, 33), batch.slice(33)]]

    once, twice = written(plan, read(plan)), written(plan, pieces)

    assert once.tables[TableId("events")].rows == twice.tables[TableId("events")].rows
    assert once.tables[TableId("events")].filtered == twice.tables[TableId("events")].filtered


def test_half_that_did_not_read_to_its_end_is_no_batch_and_leaves_no_file(
    plan: FlowPlan, tmp_path: Path
) -> None:
    manifest = written(plan, read(plan)[:-1])

    assert isinstance(manifest.error, Defect)
    assert not list((tmp_path / "events").rglob("*.parquet"))


def test_proposal_of_the_reading_half_leaves_the_table_as_it_was(plan: FlowPlan, tmp_path: Path) -> None:
    noted = read(plan)
    told = Manifest.from_json(noted[-1].column(NOTE)[0].as_py())
    told.tables[TableId("events")].proposal = pa.schema([("price", pa.float64())])
    last = noted[-1].set_column(noted[-1].schema.names.index(NOTE), NOTE, pa.array([told.to_json()]))

    manifest = written(plan, [*noted[:-1], last])

    assert manifest.tables[TableId("events")].proposal is not None
    assert not manifest.tables[TableId("events")].files
    assert not list((tmp_path / "events").rglob("*.parquet"))


def test_task_without_events_has_no_manifest(plan: FlowPlan) -> None:
    assert write_half(plan, iter([])) is None


def test_events_that_come_back_from_spark_know_the_partition_of_each() -> None:
    origin = origin_of(
        4,
        stream=pa.array(["a", "b", "b", None]),
        partition=pa.array([7, -3, 7, None], pa.int32()),
        offset=pa.array(range(4)),
    )
    columns = {PAYLOAD: pa.nulls(4, pa.binary()), EVENT_ORIGIN: origin.to_struct_array()}
    events = CarriedEvents(pa.RecordBatch.from_pydict(columns), lambda stream, number: f"{stream}/{number}")

    assert events.partitions().to_pylist() == ["a/7", "b/-3", "b/7", "None/None"]
    assert events.counts([1, 2, 2]) == {"b/-3": 1, "b/7": 2}
