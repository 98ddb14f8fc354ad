from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakefeed.refresh.stored_rows import Reading, needs_own_reader, read_files
from lakefeed.stores import open_store
from lakefeed.tables.log.log import Log
from support.delta_tables import write_table


def test_spark_reads_a_disk_itself_and_an_object_store_only_with_a_client_of_its_own() -> None:
    assert not needs_own_reader("/lake/events", {})
    assert not needs_own_reader("file:///lake/events", {})
    assert needs_own_reader("s3://lake/events", {})
    assert not needs_own_reader(
        "s3://lake/events", {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.5.0"}
    )


def test_rows_of_a_version_have_its_columns_and_the_values_of_their_partitions(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    old = {"id": [1], "day": ["2026-11-01"]}
    table = write_table(path, [old, {"id": [2], "day": ["2026-11-02"]}], partition_by=["day"])
    log = Log.open(open_store(str(path), {}))
    assert log is not None
    schema = pa.schema([*table.schema, ("later", pa.string())])

    found = {
        version: read_files(Reading(str(path), {}, schema, []), list(log.snapshot(version).files.values()))
        for version in (0, 1)
    }

    rows = {version: pa.Table.from_batches(list(batches), schema) for version, batches in found.items()}
    assert rows[0].to_pylist() == [{"id": 1, "day": "2026-11-01", "later": None}]
    assert sorted(rows[1]["day"].to_pylist()) == ["2026-11-01", "2026-11-02"]
