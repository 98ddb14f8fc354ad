"""Tables that Spark wrote, fed by a pipeline: Spark and DuckDB read what landed, or it is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, TableError
from lakefeed.columns.column_types import type_text
from lakefeed.engine.inline import run_inline
from lakefeed.handles.handle import TableHandle
from lakefeed.pipeline.test_file import Sample
from lakefeed.sources import source_of
from lakefeed.sources.samples import SampleSource
from lakefeed.testing import run_samples
from support.delta_spark import DeltaSpark
from support.delta_tables import ids, rows
from support.zoo import ZOO

REFUSED = {
    "check": "the CHECK constraint positive (id >= 0)",
    "generated": "column tenfold has a generation expression",
    "v2_checkpoint": "uses v2Checkpoint",
    "clustered": "uses clustering and domainMetadata",
    "row_tracking": "uses domainMetadata and rowTracking",
    "identity": "uses identityColumns",
    "defaults": "uses allowColumnDefaults",
    "in_commit_timestamp": "uses inCommitTimestamp",
    "widened": "uses typeWidening",
}
MIXED = Pipeline.model_validate(
    {
        "name": "mixed",
        "sources": {
            "events": {"type": "kafka", "brokers": "localhost:9", "topics": ["events"], "format": "json"}
        },
        "tables": {"t": {"path": "/lake/t", "from": "events"}},
    }
)
PARTITIONED = ("plain", "letters_in_paths", "signs_in_paths")
NEW = list(range(100, 110))


def feed(name: str, folder: Path) -> None:
    """Let a pipeline read ten events into a table."""
    file = folder / "feed.yaml"
    layout = "partition_by: [day], " if name in PARTITIONED else ""
    file.write_text(
        f"""\
name: feed
sources: {{events: {{type: kafka, brokers: "localhost:9", topics: [events], format: json}}}}
tables: {{t: {{path: {name}, from: events, {layout}create: false}}}}
"""
    )
    pipeline = Pipeline.from_file(file)
    samples = [Sample(text=json.dumps({"id": number, "day": "d0", "v": 1.5})) for number in NEW]
    source = SampleSource.of(source_of(pipeline, "events"), "events", samples)
    run_inline(pipeline.model_copy(update={"sources": {"events": source}}))


@pytest.mark.parametrize("name", ZOO)
def test_a_table_of_spark_is_fed_or_refused_by_the_name_of_what_it_asks(
    name: str, zoo: Path, tmp_path: Path
) -> None:
    shutil.copytree(zoo / name, tmp_path / name)
    before = rows(tmp_path / name)

    if name in REFUSED:
        with pytest.raises(TableError) as refused:
            feed(name, tmp_path)
        assert REFUSED[name] in str(refused.value)
        assert rows(tmp_path / name) == before
        return
    feed(name, tmp_path)
    feed(name, tmp_path)

    after = rows(tmp_path / name)
    assert set(before) <= set(after)
    assert len(after) == len(before) + len(NEW)
    assert [number for number in ids(tmp_path / name) if number >= 100] == NEW


def test_spark_reads_what_was_fed_and_its_constraints_are_the_reason_to_refuse(
    zoo: Path, tmp_path: Path, delta_spark: DeltaSpark
) -> None:
    fed = ("plain", "writer_5", "change_feed", "timestamp_ntz", "every_type", "mapping")
    for name in fed:
        shutil.copytree(zoo / name, tmp_path / name)
        feed(name, tmp_path)

    for name in fed:
        found = sorted(delta_spark.read(tmp_path / name)["id"].to_pylist())
        assert found[-10:] == NEW, name
    # A feature that Spark sets while a pipeline could be running, and takes away again.
    table = f"delta.`{tmp_path / 'plain'}`"
    delta_spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT few CHECK (id < 1000)")
    with pytest.raises(TableError, match=r"the CHECK constraint few \(id < 1000\)") as refused:
        feed("plain", tmp_path)
    assert f"ALTER TABLE {table} DROP CONSTRAINT few" in str(refused.value)
    delta_spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT few")
    feed("plain", tmp_path)
    _columns_of_mixed_types_stay_so_when_spark_has_changed_the_table(delta_spark, tmp_path)


def _columns_of_mixed_types_stay_so_when_spark_has_changed_the_table(spark: DeltaSpark, folder: Path) -> None:
    mixed = [
        {"id": n, "v": n if n % 2 else "x", "l": [n, "x"], "o": {"w": True if n % 2 else 1}}
        for n in range(40)
    ]
    landed = run_samples(MIXED, {"events": [Sample(json=one) for one in mixed]}, folder / "run")
    table = f"delta.`{landed.path('t')}`"
    spark.sql(
        f"INSERT INTO {table} VALUES (40, 'y', array('y'), named_struct('w', 'y'))",
        f"ALTER TABLE {table} ADD COLUMNS (note string, o.more long)",
        f"OPTIMIZE {table}",
        f"ALTER TABLE {table} SET TBLPROPERTIES ('mine' = '1')",
    )
    schema = DeltaTable(landed.path("t")).schema()
    handle = TableHandle("t", landed.path("t"), {}, MIXED.tables["t"])
    handle.look()

    columns = handle.columns()
    assert columns is not None
    assert {one.name: type_text(one.type) for one in columns} == {
        **{"id": "long", "v": "json", "l": "array<json>"},
        **{"o": "struct<w: json, more: long>", "note": "string"},
    }, schema.to_json()
    assert len(spark.read(landed.path("t"))) == 41
