"""Commits through a lock table in DynamoDB, as S3DynamoDBLogStore of Spark makes them: one writer wins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed.errors import TableError
from lakefeed.stores import is_unsafe, open_store, put_entry
from lakefeed.tables.log.entry import entry_name
from lakefeed.tables.operations import (
    checkpoint,
    convert,
    delete,
    drop,
    properties,
    repartition,
    replace,
    restore,
)
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.protocol import features
from lakefeed.tables.schema import add_columns
from support.command_line import in_process
from support.delta_tables import open_any
from support.feeder import Feeder
from support.ledger import assert_each_once, table_ids
from support.lock_table import LockTableOf
from support.processes import wait_until
from support.s3 import S3Server
from support.unreliable import Fault, UnreliableStore
from support.zoo import unpack

WHO = operation_info("test", by="test")
APPEND = """\
import json, sys
from support.feeder import Feeder
path, storage = sys.argv[1], json.loads(sys.argv[2])
Feeder(path, storage).append(10)
"""


@pytest.fixture(scope="module")
def door(s3: S3Server) -> Iterator[UnreliableStore]:
    with UnreliableStore(s3) as door:
        yield door


@pytest.fixture
def locks(s3: S3Server) -> LockTableOf:
    return LockTableOf(s3)


@pytest.fixture
def path(s3: S3Server) -> str:
    bucket = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    return f"s3://{bucket}/events"


def test_eight_racing_writers_of_one_version_have_one_winner(
    path: str, locks: LockTableOf, s3: S3Server
) -> None:
    stores = [open_store(path, locks.storage) for _ in range(8)]
    start = threading.Barrier(8)

    def race(writer: int, version: int) -> int | None:
        start.wait()
        try:
            put_entry(stores[writer], entry_name(version), b"%d" % writer)
        except FileExistsError:
            return None
        return writer

    with ThreadPoolExecutor(8) as pool:
        for version in range(5):
            ended = list(pool.map(race, range(8), [version] * 8))
            (winner,) = [writer for writer in ended if writer is not None]
            assert stores[0].open_input_stream(entry_name(version)).read() == b"%d" % winner

    locks.assert_every_version_went_through(path, 5)
    assert not [key for key in s3.keys(path.split("/")[2]) if ".tmp" in key]


def test_two_pipelines_on_one_table_lose_and_double_nothing(
    path: str, locks: LockTableOf, s3: S3Server
) -> None:
    Feeder(path, locks.storage)
    start = threading.Barrier(2)

    def feed(partition: int) -> None:
        feeder = Feeder(path, locks.storage, str(partition))
        start.wait()
        for batch in range(6):
            feeder.append(partition * 1000 + batch * 10)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(feed, range(2)))

    assert_each_once([*range(60), *range(1000, 1060)], table_ids(path, storage=s3.storage))
    locks.assert_every_version_went_through(path, 13)


@pytest.mark.parametrize(
    ("method", "step", "landed", "visible"),
    [
        ("PUT", r"_delta_log/\.tmp/", False, 1),
        ("POST", "TransactWriteItems", True, 1),
        ("PUT", r"_delta_log/0+2\.json$", True, 2),
        ("POST", "PutItem", True, 2),
        ("POST", r"\?delete", True, 2),
    ],
    ids=["prepared", "taken", "copied", "completed", "tidied"],
)
def test_a_writer_that_is_killed_after_a_step_is_repaired_by_the_next(
    path: str, door: UnreliableStore, s3: S3Server, method: str, step: str, landed: bool, visible: int
) -> None:
    locks = LockTableOf(s3)
    Feeder(path, locks.storage).append(0)
    other = Feeder(path, locks.storage, "1")
    slow = {**locks.storage, "AWS_ENDPOINT_URL": door.storage["AWS_ENDPOINT_URL"]}
    door.heal()
    door.inject(Fault("held", method, step))

    tests = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": tests}
    command = [sys.executable, "-c", APPEND, path, json.dumps(slow)]
    child = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    wait_until(lambda: door.met() == [1], 120, lambda: f"{step} was not asked for: {door.requests()}")
    child.kill()
    child.wait()
    door.heal()
    seen = DeltaTable(path, storage_options=s3.storage).version()
    other.append(100)
    again = Feeder(path, locks.storage)
    found = again.next
    again.append(found)

    assert (seen, found) == (visible, 20 if landed else 10)
    assert_each_once([*range(found + 10), *range(100, 110)], table_ids(path, storage=s3.storage))
    locks.assert_every_version_went_through(path, again.table.version + 1)


def test_what_spark_has_taken_and_not_copied_is_finished_before_the_next_commit(
    path: str, locks: LockTableOf, s3: S3Server
) -> None:
    ours = Feeder(path, locks.storage)
    ours.append(0)
    name, temp = f"{2:020d}.json", f".tmp/{2:020d}.json.{uuid4()}"
    content = {"txn": {"appId": "spark", "version": 7}}
    key = f"events/_delta_log/{temp}"
    s3.client.put_object(Bucket=path.split("/")[2], Key=key, Body=json.dumps(content).encode() + b"\n")
    spelled = path.replace("s3://", "s3a://")
    locks.put(tablePath=spelled, fileName=name, tempPath=temp, complete="false")

    version = ours.append(10)

    assert version == 3
    assert ours.table.transactions["spark"] == 7
    spark = [item for item in locks.items() if item["tablePath"] == spelled and item["fileName"] == name]
    assert [(item["complete"], item["tempPath"]) for item in spark] == [("true", temp)]
    assert int(spark[0]["expireTime"]) > 0


def test_an_answer_that_is_lost_is_no_refusal(path: str, door: UnreliableStore, s3: S3Server) -> None:
    locks = LockTableOf(s3)
    storage = {**locks.storage, "AWS_ENDPOINT_URL_DYNAMODB": door.storage["AWS_ENDPOINT_URL"]}
    feeder = Feeder(path, storage)
    door.heal()
    door.inject(Fault("lost_answer", "POST", "TransactWriteItems"))

    version = feeder.append(0)

    assert (version, door.met()) == (1, [1])
    assert_each_once(range(10), table_ids(path, storage=s3.storage))


def test_a_commit_costs_five_requests_to_each_service(path: str, door: UnreliableStore, s3: S3Server) -> None:
    locks = LockTableOf(s3)
    feeder = Feeder(path, {**locks.storage, "AWS_ENDPOINT_URL": door.storage["AWS_ENDPOINT_URL"]})
    door.heal()
    feeder.append(0)
    door.requests()

    feeder.append(10)

    asked = [request.split(" ", 1) for request in door.requests() if "part-" not in request]
    told = [(method, asking.partition("DynamoDB_20120810.")[2]) for method, asking in asked]
    assert sorted(told) == [
        *[("HEAD", "")] * 2,
        ("POST", ""),  # a deletion
        *[("POST", "GetItem")] * 2,
        *[("POST", "PutItem")] * 2,
        ("POST", "TransactWriteItems"),
        *[("PUT", "")] * 2,
    ]


def test_every_table_command_goes_through_the_lock_table(
    path: str, locks: LockTableOf, s3: S3Server, tmp_path: Path
) -> None:
    feeder = Feeder(path, locks.storage)
    feeder.append(0)
    feeder.append(10)
    table = feeder.table
    pq.write_table(pa.table({"event_id": [3, 4], "city": ["x", "y"]}), tmp_path / "rows.parquet")
    rows = replace.Rows.at(str(tmp_path / "rows.parquet"), {})

    add_columns(table, [pa.field("city", pa.string())], WHO)
    properties.run(table, properties.plan(table, {"delta.appendOnly": "false", "owner": "me"}), WHO)
    delete.run(table, delete.plan(table, "event_id < 5"), WHO)
    replace.run(table, replace.plan(table, "event_id < 5", rows), WHO)
    repartition.run(table, repartition.plan(table, ["city"]), WHO)

    ids = [3, 4, *range(5, 20)]
    assert_each_once(ids, table_ids(path, storage=s3.storage))
    assert table.partition_columns == ["city"] and table.properties["owner"] == "me"
    locks.assert_every_version_went_through(path, table.version + 1)
    drop.run(table, drop.plan(table))
    assert locks.items() == [] and s3.keys(path.split("/")[2]) == []


def test_a_table_with_checkpoints_of_version_2_is_changed_through_the_lock_table(
    path: str, locks: LockTableOf, s3: S3Server, tmp_path: Path
) -> None:
    bucket, written = path.split("/")[2], unpack(tmp_path) / "v2_checkpoint"
    for file in written.rglob("*"):
        if file.is_file() and not file.name.startswith("."):
            s3.client.upload_file(str(file), bucket, f"events/{file.relative_to(written)}")
    # As a log that was cleaned: only the checkpoint and its sidecar know the files.
    for version in range(2):
        s3.client.delete_object(Bucket=bucket, Key=f"events/_delta_log/{version:020d}.json")
    table = open_any(path, locks.storage)

    delete.run(table, delete.plan(table, "id = 3"), WHO)
    add_columns(table, [pa.field("city", pa.string())], WHO)
    properties.run(table, properties.plan(table, {"owner": "me"}), WHO)
    checkpoint.run(table, checkpoint.plan(table))
    restore.run(table, restore.plan(table, 2), WHO)

    assert_each_once(range(20), table_ids(path, "id", s3.storage))
    assert table.version == 6 and "v2Checkpoint" in features(table.delta)
    taken = {item["fileName"] for item in locks.items() if item["complete"] == "true"}
    assert taken == {f"{version:020d}.json" for version in range(3, 7)}


def test_files_become_a_table_through_the_lock_table(path: str, locks: LockTableOf, s3: S3Server) -> None:
    store = open_store(path, locks.storage)
    with store.open_output_stream("one.parquet") as stream:
        pq.write_table(pa.table({"event_id": [1, 2]}), stream)

    convert.run(convert.plan(path, store, {}), locks.storage, WHO)

    assert_each_once([1, 2], table_ids(path, storage=s3.storage))
    locks.assert_every_version_went_through(path, 1)


def test_a_lock_table_that_is_missing_is_told_with_the_command_that_makes_it(
    path: str,
    locks: LockTableOf,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = {**locks.storage, "DELTA_DYNAMO_TABLE_NAME": "nowhere"}
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"name: shop\nsources: {{clicks: {{type: generate, rows: 10}}}}\n"
        f"tables: {{events: {{path: {path}, from: clicks, schema: {{event_id: long}}}}}}\n"
        f"storage: {json.dumps(storage)}\n"
    )
    lakefeed = in_process(capsys, monkeypatch)

    code, said, _ = lakefeed("doctor", file)
    _, planned, _ = lakefeed("plan", file)

    assert code == 3
    for text in (said, planned):
        assert "there is no lock table nowhere in DynamoDB in us-east-1" in text, text
        assert "aws dynamodb create-table --region us-east-1 --table-name nowhere" in text
        assert "AttributeName=fileName,KeyType=RANGE" in text


def test_entries_of_a_table_that_was_deleted_are_told(path: str, locks: LockTableOf, s3: S3Server) -> None:
    Feeder(path, locks.storage)
    bucket = path.split("/")[2]
    for key in s3.keys(bucket):
        s3.client.delete_object(Bucket=bucket, Key=key)

    with pytest.raises(TableError, match=r"knows 0{20}\.json of this path, and the log does not have it"):
        Feeder(path, locks.storage)


def test_doctor_races_through_the_lock_table_and_leaves_nothing_there(
    path: str,
    locks: LockTableOf,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unsafe = {**locks.storage, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"name: shop\nsources: {{clicks: {{type: generate, rows: 10}}}}\n"
        f"tables: {{events: {{path: {path}, from: clicks, schema: {{event_id: long}}}}}}\n"
        f"storage: {json.dumps(unsafe)}\n"
    )

    _, said, _ = in_process(capsys, monkeypatch)("doctor", file)

    assert f"{path} can be written, read, committed to and deleted from" in said
    assert locks.items() == []
    assert not is_unsafe(path, unsafe)


def test_other_providers_of_locks_and_a_missing_client_are_told(
    path: str, locks: LockTableOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TableError, match="AWS_S3_LOCKING_PROVIDER is zookeeper, and only dynamodb is known"):
        open_store(path, {"AWS_S3_LOCKING_PROVIDER": "zookeeper"})

    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    with pytest.raises(TableError, match=r"needs botocore\.\nInstall it: pip install 'lakefeed\[dynamodb\]'"):
        Feeder(path, locks.storage)


def test_a_version_that_could_not_be_copied_is_copied_when_it_is_looked_up(
    path: str, door: UnreliableStore, s3: S3Server
) -> None:
    locks = LockTableOf(s3)
    storage = {**locks.storage, "AWS_ENDPOINT_URL": door.storage["AWS_ENDPOINT_URL"], "max_retries": "0"}
    storage["AWS_ENDPOINT_URL_DYNAMODB"] = s3.endpoint
    feeder = Feeder(path, storage)
    door.heal()
    door.inject(Fault("unavailable", "PUT", r"_delta_log/0+1\.json$"))

    version = feeder.append(0)

    assert (version, door.met()) == (1, [1])
    assert_each_once(range(10), table_ids(path, storage=s3.storage))
    locks.assert_every_version_went_through(path, 2)
