"""Table commands on an object store: the same plan, the same safety."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import DataLoss, Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from lakefeed.stores import open_store
from lakefeed.tables.operations import convert, delete, drop, properties, vacuum
from lakefeed.tables.operations import restore as restoring
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.rewrite import compact
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import open_any
from support.s3 import S3Server

INFO = operation_info("test", by="test")


@pytest.fixture
def bucket(s3: S3Server) -> str:
    name = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(name)
    return name


def fill(path: str, storage: dict[str, str]) -> None:
    for number in range(3):
        rows = pa.table({"id": [number, number + 10], "p": ["a b/ü%=x", None]})
        write_deltalake(path, rows, mode="append", partition_by=["p"], storage_options=storage)


def ids(path: str, storage: dict[str, str]) -> list[int]:
    return sorted(DeltaTable(path, storage_options=storage).to_pyarrow_table()["id"].to_pylist())


def test_table_is_compacted_vacuumed_restored_and_dropped_on_s3(s3: S3Server, bucket: str) -> None:
    path, storage = f"s3://{bucket}/deep/table", s3.storage
    fill(path, storage)
    write_deltalake(f"{path}/nested", pa.table({"id": [7]}), storage_options=storage)
    s3.client.put_object(Bucket=bucket, Key="deep/table/README", Body=b"mine")
    s3.client.put_object(Bucket=bucket, Key="deep/table/orphan.parquet", Body=b"x")
    table = open_any(path, storage)

    compacted = compact.run(table, compact.plan(table), INFO, file_writer)
    again = compact.plan(table)
    kept = vacuum.plan(table)
    soon = vacuum.plan(table, retain=0.001, allow_short=True)
    delete.run(table, delete.plan(table, "id = 1"), INFO)
    deleted = ids(path, storage)
    restoring.run(table, restoring.plan(table, table.version - 1), INFO)

    assert (compacted.before.files, compacted.after.files, again.steps) == (6, 2, ())
    assert (kept.files, kept.young.files) == ((), 1)
    assert kept.left_alone == ("nested", "README")
    assert len(soon.files) == 6 and "orphan.parquet" not in {file.path for file in soon.files}
    assert deleted == [0, 2, 10, 11, 12]
    assert ids(path, storage) == [0, 1, 2, 10, 11, 12]

    vacuum.run(table, soon, INFO)
    still = ids(path, storage)
    drop.run(table, drop.plan(table))

    assert still == [0, 1, 2, 10, 11, 12]
    left = s3.keys(bucket)
    assert "deep/table/README" in left
    assert all(key.startswith("deep/table/nested/") for key in left if key != "deep/table/README")
    assert ids(f"{path}/nested", storage) == [7]


def test_parquet_files_on_s3_become_a_table_and_get_properties(s3: S3Server, bucket: str) -> None:
    path, storage = f"s3://{bucket}/old", s3.storage
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2]}), sink)
    body = sink.getvalue().to_pybytes()
    s3.client.put_object(Bucket=bucket, Key="old/day=2026-11-15/a.parquet", Body=body)

    plan = convert.plan(path, open_store(path, storage), {"day": pa.date32()})
    convert.run(plan, storage, INFO)
    table = open_any(path, storage)
    properties.run(table, properties.plan(table, {"delta.checkpointInterval": "5"}), INFO)
    set_to = DeltaTable(path, storage_options=storage).metadata().configuration
    properties.run(table, properties.plan(table, {}, ["delta.checkpointInterval"]), INFO)

    found = DeltaTable(path, storage_options=storage)
    assert found.to_pyarrow_table()["day"].to_pylist() == [dt.date(2026, 11, 15)] * 2
    assert set_to == {"delta.checkpointInterval": "5"}
    assert found.metadata().configuration == {}


def test_tables_feed_tables_on_s3_and_a_vacuumed_file_is_told(
    s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    file, storage = tmp_path / "copy.yaml", s3.storage
    file.write_text(
        f"""\
name: copy
sources: {{theirs: {{type: delta, path: "s3://{bucket}/theirs", storage: {json.dumps(storage)}}}}}
tables:
  bronze: {{path: "s3://{bucket}/bronze", from: theirs}}
  silver: {{path: {tmp_path / "silver"}, from: bronze, storage: {{}}}}
storage: {json.dumps(storage)}
dead_letters: {{path: {tmp_path / "letters"}}}
"""
    )
    fill(f"s3://{bucket}/theirs", storage)
    run_inline(Pipeline.from_file(file))
    fill(f"s3://{bucket}/theirs", storage)
    run_inline(Pipeline.from_file(file))

    assert ids(f"s3://{bucket}/bronze", storage) == ids(str(tmp_path / "silver"), {})
    assert ids(str(tmp_path / "silver"), {}) == sorted([0, 1, 2, 10, 11, 12] * 2)
    assert verify(Pipeline.from_file(file)).sound
    fill(f"s3://{bucket}/theirs", storage)
    theirs = DeltaTable(f"s3://{bucket}/theirs", storage_options=storage)
    for path in theirs.file_uris()[:]:
        s3.client.delete_object(Bucket=bucket, Key=path.split(f"{bucket}/", 1)[1])
    with pytest.raises(DataLoss, match="is gone: a vacuum has removed it"):
        run_inline(Pipeline.from_file(file))
