"""A pipeline with a new name on a table that another has fed: refused, unless the file says that both may."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lakefeed import Fenced, Pipeline, TableError
from lakefeed.engine.instance import only_instance
from lakefeed.handles.sharing import refuse_ingested
from lakefeed.handles.tables import Tables as LakeTables
from lakefeed.reports.plan.plan import plan_run
from support.offline import drain


class Tables:
    """Pipelines that write a hundred generated events into one table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(
        self, name: str, *, source: str = "clicks", seed: int = 0, share: bool = False, more: str = ""
    ) -> Path:
        file = self.folder / f"{name}.yaml"
        file.write_text(
            f"""\
name: {name}
sources:
  {source}: {{type: generate, rows: 100, seed: {seed}}}
tables:
  events:
    path: events
    from: {source}
    schema: {{event_id: long}}
    share: {str(share).lower()}
{more}"""
        )
        return file

    @property
    def rows(self) -> int:
        return len(DeltaTable(self.folder / "events").to_pyarrow_table())


@pytest.fixture
def lake(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def test_renamed_pipeline_is_told_what_to_do_and_writes_nothing(lake: Tables) -> None:
    drain(lake.file("shop"))
    renamed = lake.file("store")

    with pytest.raises(TableError) as refused:
        drain(renamed)

    assert str(refused.value) == (
        f"table events: {lake.folder}/events holds events that pipeline 'shop' has written; "
        "pipeline 'store' would write them a second time.\n"
        "If 'shop' was renamed, set `name: shop` again: positions belong to the name. If both must feed the "
        "table, set `share: true` on it;\n"
        "for a second copy of the events choose another path."
    )
    assert lake.rows == 100
    assert plan_run(Pipeline.from_file(renamed)).tables[0].refused == str(refused.value)


def test_renamed_source_is_told_the_same(lake: Tables) -> None:
    drain(lake.file("shop"))

    with pytest.raises(TableError) as refused:
        drain(lake.file("shop", source="views"))

    assert "that source 'clicks' has written; source 'views' would write them a second" in str(refused.value)
    assert "If 'clicks' was renamed, name it `clicks` again: positions belong to the name." in str(
        refused.value
    )
    assert lake.rows == 100


def test_table_that_says_so_takes_the_events_of_both(lake: Tables) -> None:
    drain(lake.file("shop"))
    drain(lake.file("store", share=True))

    assert lake.rows == 200
    drain(lake.file("store"))
    assert lake.rows == 200


def test_source_of_other_events_may_feed_the_same_table(lake: Tables) -> None:
    drain(lake.file("shop"))
    drain(lake.file("store", seed=1))

    assert lake.rows == 200


def test_refused_table_leaves_the_others_of_its_pipeline_alone(lake: Tables) -> None:
    drain(lake.file("shop"))

    with pytest.raises(TableError):
        drain(lake.file("store", more="  own: {path: own, from: clicks, schema: {event_id: long}}\n"))

    assert (lake.rows, len(DeltaTable(lake.folder / "own").to_pyarrow_table())) == (100, 100)


def test_tables_of_a_route_are_refused_as_well(lake: Tables) -> None:
    def write(name: str) -> Path:
        file = lake.folder / f"{name}.yaml"
        file.write_text(
            f"name: {name}\n"
            "sources: {clicks: {type: generate, rows: 100}}\n"
            "tables: {events: {route: 'lake/{event_type}', from: clicks}}\n"
        )
        return file

    drain(write("shop"))

    with pytest.raises(TableError, match="that pipeline 'shop' has written; pipeline 'store' would write"):
        drain(write("store"))


def test_second_instance_is_told_who_runs_and_what_another_name_means(lake: Tables) -> None:
    import os

    pipeline = Pipeline.from_file(lake.file("shop"))

    with only_instance(pipeline), pytest.raises(Fenced) as refused, only_instance(pipeline):
        pass

    assert str(refused.value) == (
        f"pipeline shop is already running on this machine as process {os.getpid()}; its lock is "
        f"{lake.folder}/.lakefeed/shop/lock.\n"
        "Stop that process first. Do not change `name`: a pipeline with a new name\n"
        "starts from the beginning and reads all events again, into tables of its own."
    )
    with only_instance(pipeline):
        pass


def ingested(folder: Path, table: str, topics: str = "[clicks]") -> Pipeline:
    """A pipeline on a table that kafka-delta-ingest has fed up to offset 999 of partition 0."""
    if not (folder / "events").exists():
        offsets = CommitProperties(app_transactions=[Transaction("clicks_app-0", 999)])
        write_deltalake(folder / "events", pa.table({"id": [1]}), commit_properties=offsets)
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{k: {{type: kafka, brokers: "b:1", topics: {topics}, format: json}}}}
tables: {{events: {{path: events, from: k, {table}}}}}
"""
    )
    return Pipeline.from_file(file)


def refuse(pipeline: Pipeline, own: dict[str, int]) -> None:
    handle = LakeTables(pipeline).handles["events"]
    handle.open(pipeline.name)
    refuse_ingested(pipeline, "k", handle, ["clicks-0", "clicks-1"], own)


def test_offsets_of_kafka_delta_ingest_are_not_passed_over(tmp_path: Path) -> None:
    pipeline = ingested(tmp_path, "")

    with pytest.raises(TableError) as refused:
        refuse(pipeline, {})
    assert str(refused.value) == (
        f"table events: {tmp_path}/events holds offsets of kafka-delta-ingest as `clicks_app`, up to 999 of "
        "partition 0; without them, its events would be written a second time.\n"
        "Set `app_id: clicks_app` on the table, to go on from there. If these are offsets of another topic, "
        "set `share: true` on it."
    )
    # It has written since `app_id` was removed.
    with pytest.raises(TableError, match="Set `app_id: clicks_app`"):
        refuse(pipeline, {"clicks-0": 999, "clicks-1": 5})


def test_offsets_that_lakefeed_has_passed_are_no_matter(tmp_path: Path) -> None:
    refuse(ingested(tmp_path, ""), {"clicks-0": 1000})
    refuse(ingested(tmp_path, "app_id: clicks_app"), {})
    refuse(ingested(tmp_path, "share: true"), {})
