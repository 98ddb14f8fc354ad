"""`plan`: what a run would do, told without doing it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.plan.plan import PlannedTable, plan_run
from lakefeed.reports.plan.warnings import Warnings
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from lakefeed.units import parse_duration
from support.landing import Landing
from support.shop import Shop


class PlannedShop(Shop):
    """A hundred events, ten of them cut off, and what `plan` says of them."""

    def write(self, table: str = "", rows: int = 100, name: str = "shop", source: str = "clicks") -> None:
        generated = f"type: generate, rows: {rows}, partitions: 2, bad_ratio: 0.1"
        self.save(generated, table, name=name, sources=[source])

    def plan(self) -> PlannedTable:
        before = sorted(self.folder.rglob("*"))
        (table,) = plan_run(self.pipeline).tables
        assert sorted(self.folder.rglob("*")) == before
        return table


@pytest.fixture
def shop(tmp_path: Path) -> PlannedShop:
    return PlannedShop(tmp_path)


def test_table_to_create_shows_its_columns_and_where_reading_begins(shop: PlannedShop) -> None:
    shop.write("schema: {event_id: long not null, event_time: timestamp}\npartition_by: [day(event_time)]")

    told = shop.plan()

    assert told.action == "create"
    assert told.columns[:2] == ["event_id long not null", "event_time timestamp"]
    assert "event_time_day date" in told.columns
    assert {name: (at.next, at.end, at.lag, at.begins) for name, at in told.resumes["clicks"].items()} == {
        "0": (0, 50, 50, True),
        "1": (0, 50, 50, True),
    }
    assert told.lag == 100


def test_columns_that_nobody_declared_are_shown_from_the_events_that_wait(shop: PlannedShop) -> None:
    shop.write()

    told = shop.plan()
    shop.drain()

    made = [field.name for field in DeltaTable(shop.table).schema().fields]
    assert told.inferred
    assert [column.split()[0] for column in told.columns] == made
    assert "price double" in told.columns
    assert told.sampled == 100
    assert told.sampled_dead_letters == {"bad_json": 10}


def test_table_that_fits_shows_nothing_to_change_and_where_it_goes_on(shop: PlannedShop) -> None:
    shop.write()
    shop.drain()
    shop.write(rows=120)

    told = shop.plan()

    assert (told.action, told.columns, told.properties, told.refused) == ("nothing", [], {}, None)
    assert {name: (at.next, at.lag, at.begins) for name, at in told.resumes["clicks"].items()} == {
        "0": (50, 10, False),
        "1": (50, 10, False),
    }


def test_table_that_nothing_waits_for_tells_no_sample_of_another_that_begins(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    head = (
        "name: shop\nsources: {clicks: {type: generate, rows: 100, partitions: 2, bad_ratio: 0.1}}\ntables:\n"
    )
    file.write_text(head + "  old: {path: old, from: clicks, expect: {dear: price > 5000}}\n")
    run_inline(Pipeline.from_file(file))
    file.write_text(file.read_text() + "  new: {path: new, from: clicks}\n")

    old, new = plan_run(Pipeline.from_file(file)).tables

    assert (old.lag, old.sampled, old.sampled_dead_letters, old.expectations) == (0, 0, {}, {})
    assert (new.lag, new.sampled, new.sampled_dead_letters) == (100, 100, {"bad_json": 10})


def test_route_goes_on_where_its_tables_are(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    text = "name: shop\nsources: {clicks: {type: generate, rows: ROWS, partitions: 2, bad_ratio: 0.1}}\n"
    text += "tables: {events: {route: 'lake/{event_type}', from: clicks}}\n"
    file.write_text(text.replace("ROWS", "100"))
    begins = plan_run(Pipeline.from_file(file)).tables[-1]
    run_inline(Pipeline.from_file(file))
    done = plan_run(Pipeline.from_file(file)).tables[-1]
    file.write_text(text.replace("ROWS", "140"))
    waits = plan_run(Pipeline.from_file(file)).tables[-1]

    assert (begins.action, begins.lag, begins.sampled) == ("create", 100, 100)
    assert (done.action, done.lag, done.sampled, done.columns) == ("route", 0, 0, [])
    assert not any(at.begins for at in done.resumes["clicks"].values())
    assert (waits.lag, waits.sampled, waits.sampled_dead_letters) == (40, 40, {"bad_json": 4})


def test_columns_and_properties_to_add_are_shown(shop: PlannedShop) -> None:
    shop.write("schema: {event_id: long}")
    shop.drain()
    shop.write("schema: {event_id: long, note: string}\nproperties: {owner: me}\nmetadata: true")

    told = shop.plan()

    assert told.action == "alter"
    assert told.columns[:2] == ["note string", "_topic string"]
    assert told.properties == {"owner": "me"}


def test_table_that_a_run_would_stop_at_tells_why(shop: PlannedShop) -> None:
    shop.write("schema: {event_id: long}")
    shop.drain()

    shop.write("schema: {event_id: string}")
    types = shop.plan().refused
    shop.write("partition_by: [event_id]")
    layout = shop.plan().refused
    shop.write("create: false")
    shop.file.write_text(shop.file.read_text().replace("path: events", "path: other"))
    missing = shop.plan().refused

    assert types and "column event_id is long in the table and string in the pipeline file" in types
    assert f"`lakefeed dead-letters replay {shop.file} --table events --yes`" in types
    assert layout and "is partitioned by nothing, the pipeline file says ['event_id']" in layout
    assert missing and "`create` is false" in missing


def test_source_whose_options_changed_stops_its_table(shop: PlannedShop) -> None:
    shop.write()
    shop.drain()
    shop.file.write_text(shop.file.read_text().replace("partitions: 2", "partitions: 2, seed: 7"))

    told = shop.plan()

    assert told.refused and "seed changed from 0 to 7" in told.refused


def test_layout_with_a_partition_for_nearly_each_row_is_warned_of(shop: PlannedShop) -> None:
    shop.write("partition_by: [event_id]", rows=1000)

    (warning,) = shop.plan().warnings

    assert warning.startswith("partition_by ['event_id']: 900 different values in 900 sampled rows")


def test_changes_that_write_the_table_again_and_again_are_told_with_what_helps(shop: PlannedShop) -> None:
    changing = (
        "mode: upsert\nkeys: product_id\nsequence_by: event_id\nschema: {event_id: long, product_id: long}"
    )
    for rows in (5_000, 5_010, 5_020, 5_030):
        shop.write(changing, rows=rows)
        if rows == 5_010:
            assert shop.plan().warnings == []
        shop.drain()

    dear, gather = shop.plan().warnings
    shop.save("type: generate, rows: 5030, partitions: 2, flush: {interval: 10s}", changing)
    (still_dear,) = shop.plan().warnings
    shop.write(f"{changing}\nupdates: merge_on_read", rows=5_030)
    content = shop.plan().warnings

    assert dear.endswith("changes; `updates: merge_on_read` writes the changes alone")
    assert gather.startswith("3 of the last 3 commits that changed rows wrote most of the table again")
    assert (still_dear, content) == (dear, [])


def test_an_order_that_may_be_none_is_warned_of(shop: PlannedShop) -> None:
    changing = "mode: upsert\nkeys: product_id\nschema: {event_id: long, product_id: long}"
    shop.write(changing)
    (unknown,) = shop.plan().warnings
    shop.write(f"{changing}\nsequence_by: event_id")

    assert unknown.startswith("without `sequence_by` the position decides which change is newer")
    assert shop.plan().warnings == []


def test_changes_of_one_source_of_files_are_in_order(tmp_path: Path) -> None:
    changing = "evolve: add, mode: upsert, keys: id, schema: {id: long}"
    landing = Landing(tmp_path, table=changing)
    landing.put("a.json", '{"id": 1}')
    (one,) = plan_run(Pipeline.from_file(landing.file)).tables
    other = "more: {type: files, path: in, format: json, settle: 1ms}"
    text = landing.file.read_text().replace("sources: {", f"sources: {{{other}, ")
    landing.file.write_text(text.replace("from: drops", "from: [drops, more]"))
    (two,) = plan_run(Pipeline.from_file(landing.file)).tables

    assert one.warnings == []
    assert [text.partition(" the")[0] for text in two.warnings] == ["without `sequence_by`"]


@pytest.mark.parametrize(
    ("partition_by", "warned"),
    [
        ("[country]", ["country"]),
        ("[event_id, event_time]", ["event_time"]),
        ("[\"strftime(event_time, '%H:%M') as at\"]", ["at"]),
        ("[day(event_time), \"strftime(event_time, '%Y-%m') as month\", hour(event_time)]", []),
    ],
)
def test_deletion_vectors_in_partitions_whose_paths_may_be_encoded_are_warned_of_by_plan_and_start(
    shop: PlannedShop, caplog: pytest.LogCaptureFixture, partition_by: str, warned: list[str]
) -> None:
    columns = "{event_id: long, event_time: timestamp, country: string}"
    keyed = "mode: upsert\nkeys: event_id\nsequence_by: event_id"
    table = f"{keyed}\nschema: {columns}\npartition_by: {partition_by}"
    shop.write(f"{table}\nupdates: merge_on_read")

    planned = [text for text in shop.plan().warnings if "Polars" in text]
    shop.drain()

    said = [f"`updates: merge_on_read` with partition_by {name}: where a value has" for name in warned]
    assert [text[: len(head)] for text, head in zip(planned, said, strict=True)] == said
    logged = [one.message for one in caplog.records if "merge_on_read" in one.message]
    assert logged == [f"table events: {text}" for text in planned]
    shop.write(f"{table}\nupdates: copy_on_write")
    assert not [text for text in shop.plan().warnings if "Polars" in text]


def test_many_small_partitions_are_warned_of(shop: PlannedShop) -> None:
    shop.write("schema: {event_id: long, product_id: long}\npartition_by: [product_id]")
    shop.drain()

    (warning,) = shop.plan().warnings

    assert warning.startswith("Partitioned by product_id into ") and "cluster by it instead" in warning


def test_rewrite_that_exceeds_the_memory_suggests_the_engine_spark(
    shop: PlannedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write("schema: {event_id: long, product_id: long}\ncluster_by: [product_id]")
    shop.drain()
    monkeypatch.setattr("lakefeed.tables.rewrite.memory.memory_available", lambda: 1000)

    (warning,) = shop.plan().warnings

    assert warning.startswith("ordering ") and "Set `upkeep: {engine: spark}`" in warning


@pytest.mark.parametrize("interval", ["interval 2 days", "interval 1 day", "interval 36 hours"])
def test_short_memory_of_the_table_is_warned_of(shop: PlannedShop, interval: str) -> None:
    shop.write(f"properties: {{delta.logRetentionDuration: {interval}}}")

    assert shop.plan().warnings == [
        f"delta.logRetentionDuration is {interval}: verify and rewind look no further back"
    ]


def test_memory_that_is_long_enough_is_not(shop: PlannedShop) -> None:
    shop.write(
        "properties: {delta.logRetentionDuration: interval 30 days,"
        " delta.deletedFileRetentionDuration: interval 1 week}"
    )

    assert shop.plan().warnings == []


def test_short_memory_of_a_source_is_warned_of() -> None:
    warnings = Warnings("shop")

    warnings.look_at_retention("events", "clicks", {"short": parse_duration("4h"), "long": 7 * 86400.0})

    assert warnings.of("events") == [
        "clicks: short keeps events for 4h: an outage longer than that loses some"
    ]


def test_names_that_others_use_are_warned_of(shop: PlannedShop) -> None:
    shop.write("schema: {event_id: long}")
    shop.drain()
    pipeline = shop.pipeline
    from lakefeed.stores import open_store

    table = LakeTable.open("events", pipeline.tables["events"].path, {}, open_store(str(shop.table), {}))
    assert table is not None
    append(table, Change([], {"other/views/0": 5, "shop/renamed/0": 7}, {}, {}), retries=0)

    found = shop.plan().warnings
    shop.write("schema: {event_id: long}", name="third")
    refused = shop.plan().refused

    assert found == [
        "pipeline other has written to this table too; make sure that both are meant to",
        "the table has positions of a source renamed, which does not feed it in this file: it was renamed, "
        "or another pipeline is called shop as well",
    ]
    assert refused is not None
    assert "that pipeline 'other' has written; pipeline 'third' would write them a second" in refused


def test_table_that_no_pipeline_has_written_is_warned_of(shop: PlannedShop) -> None:
    for _ in range(2):
        write_deltalake(shop.table, pa.table({"event_id": pa.array([1], pa.int64())}), mode="append")
    shop.write("schema: {event_id: long}")

    assert shop.plan().warnings == [
        "the table exists, but has no position of this pipeline: the run begins at `start`, and events that "
        "the table already has are written a second time"
    ]
