"""Tables in an object store: the same promises as on a disk, kept against a real S3 server."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from conftest import TopicFactory
from lakefeed import Pipeline, TableError
from lakefeed.reports.status import status
from support.drivers import Drivers
from support.kafka import Broker
from support.ledger import assert_each_once, dead_letters, table_ids
from support.s3 import S3Server

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def bucket(s3: S3Server) -> str:
    name = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(name)
    return name


def pipeline_file(folder: Path, s3: S3Server, source: str, tables: str, name: str = "shop") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(
        f"""\
name: {name}
sources: {{clicks: {source}}}
tables:
{tables}
storage: {json.dumps(s3.storage)}
give_up_after: 20s
"""
    )
    return file


def run(file: Path, *overrides: str) -> Pipeline:
    pipeline = Pipeline.from_file(file, overrides)
    pipeline.run(once=True)
    return pipeline


def data_files(s3: S3Server, bucket: str, table: str) -> set[str]:
    """The Parquet files under a table's prefix, without checkpoints of its log."""
    keys = [key.removeprefix(f"{table}/") for key in s3.keys(bucket, f"{table}/")]
    return {key for key in keys if key.endswith(".parquet") and not key.startswith("_delta_log")}


def files_in_log(s3: S3Server, bucket: str, table: str) -> set[str]:
    delta = DeltaTable(f"s3://{bucket}/{table}", storage_options=s3.storage)
    return set(pa.table(delta.get_add_actions(flatten=True)).column("path").to_pylist())


def test_two_runs_from_kafka_land_every_event_once_on_s3(
    broker: Broker, topic: TopicFactory, s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    source = f"{{type: kafka, brokers: '{broker.address}', topics: [{name}], format: json}}"
    table = f"  events: {{path: 's3://{bucket}/events', from: clicks, partition_by: [kind]}}"
    file = pipeline_file(tmp_path, s3, source, table)
    payloads = [json.dumps({"event_id": n, "kind": f"k {n % 3}"}) for n in range(600)]
    broker.produce(name, payloads[:300])
    broker.produce(name, ["{", "[]"])

    run(file)
    broker.produce(name, payloads[300:])
    pipeline = run(file, "flush.rows=100")

    path, dead_letters_path = f"s3://{bucket}/events", f"s3://{bucket}/shop_dead_letters"
    assert_each_once(range(600), table_ids(path, storage=s3.storage))
    letters = dead_letters(dead_letters_path, s3.storage)
    assert sorted(letter["payload"] for letter in letters) == [b"[]", b"{"]
    delta = DeltaTable(path, storage_options=s3.storage)
    assert delta.metadata().partition_columns == ["kind"]
    kinds = delta.to_pyarrow_table(columns=["event_id", "kind"]).to_pylist()
    assert all(row["kind"] == f"k {row['event_id'] % 3}" for row in kinds)
    found = status(pipeline)
    assert (found.tables[0].rows, found.tables[0].lag, found.dead_letters.rows) == (600, 0, 2)
    assert found.tables[0].files == len(data_files(s3, bucket, "events"))


def test_attempt_that_had_to_be_repeated_leaves_no_file_behind(
    s3: S3Server, bucket: str, tmp_path: Path
) -> None:
    tables = "\n".join(
        [
            # The columns that are not declared are met by every task, after it has begun to write.
            f"  events: {{path: 's3://{bucket}/events', from: clicks, schema: {{event_id: long not null}}}}",
            f"  inferred: {{path: 's3://{bucket}/inferred', from: clicks}}",
        ]
    )
    file = pipeline_file(tmp_path, s3, "{type: generate, rows: 120000, bad_ratio: 0.001}", tables)

    run(file)

    for table in ("events", "inferred", "shop_dead_letters"):
        assert data_files(s3, bucket, table) == files_in_log(s3, bucket, table)
    ids = table_ids(f"s3://{bucket}/events", storage=s3.storage)
    letters = dead_letters(f"s3://{bucket}/shop_dead_letters", s3.storage)
    dead = [letter["offset"] for letter in letters if letter["table"] == "events"]
    assert_each_once(range(120_000), ids, dead)


def test_two_pipelines_that_write_one_table_at_the_same_time_lose_nothing(
    s3: S3Server, bucket: str, drivers: Drivers, tmp_path: Path
) -> None:
    path, names = f"s3://{bucket}/events", ("east", "west")
    table = f"""\
  events:
    path: {path}
    from: clicks
    schema: {{event_id: long not null, event_time: timestamp}}
    metadata: true
    commit_retries: 10
"""
    files = [
        pipeline_file(
            tmp_path, s3, f"{{type: generate, rows: 2000, partitions: {n}, bad_ratio: 0.01}}", table, name
        )
        for n, name in enumerate(names, 1)
    ]

    both = [drivers.start(file, "flush.rows=100") for file in files]
    ended = [driver.wait() for driver in both]
    assert [one.code for one in ended] == [0, 0], ended

    delta = DeltaTable(path, storage_options=s3.storage)
    accounts = [json.loads(one["lakefeed"]) for one in delta.history() if "lakefeed" in one]
    order = [commit_info["pipeline"] for commit_info in accounts if commit_info["kind"] == "rows"]
    assert {name: order.count(name) for name in names} == {"east": 20, "west": 20}
    ids = table_ids(path, storage=s3.storage)
    dead: list[int] = []
    for n, name in enumerate(names, 1):
        letters = dead_letters(f"s3://{bucket}/{name}_dead_letters", s3.storage)
        dead += [letter["offset"] * n + letter["partition"] for letter in letters]
    assert sorted([*ids, *dead]) == sorted([*range(2000), *range(2000)])


def test_missing_bucket_is_told_and_not_retried(s3: S3Server, tmp_path: Path) -> None:
    table = "  events: {path: 's3://no-such-bucket/events', from: clicks, schema: {event_id: long}}"
    file = pipeline_file(tmp_path, s3, "{type: generate, rows: 10}", table)
    letters = f"dead_letters.path={tmp_path / 'letters'}"

    with pytest.raises(TableError) as refused:
        run(file, letters)

    assert str(refused.value) == (
        "s3://no-such-bucket/events: the bucket or container does not exist\nCreate it, or correct the path."
    )
    assert not refused.value.retryable
    found = status(Pipeline.from_file(file, [letters])).tables[0]
    assert found.version is None
    assert found.error == str(refused.value)
