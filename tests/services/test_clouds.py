"""The core of a run on each cloud's store: killed, continued, proved, replayed, rewound, looked after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from lakefeed.stores import delta_options, open_store
from lakefeed.tables.operations import checkpoint, delete, drop, vacuum
from lakefeed.tables.operations import restore as restoring
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.rewrite import compact
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from lakefeed.upkeep.file_writer import file_writer
from support.azurite import AzuriteServer
from support.command_line import in_process
from support.delta_tables import open_any
from support.feeder import Feeder
from support.forks import run_and_kill
from support.gcs import GcsServer
from support.identity import shared_access_signature
from support.ledger import assert_each_once, dead_letters, table_ids
from support.lock_table import LockedS3
from support.object_server import ObjectServer
from support.s3 import S3Server

INFO = operation_info("test", by="test")


class Lake:
    """A pipeline whose tables lie in one cloud."""

    def __init__(self, cloud: ObjectServer, folder: Path) -> None:
        bucket = f"lake-{uuid4().hex[:8]}"
        cloud.create_bucket(bucket)
        self.cloud, self.file = cloud, folder / "shop.yaml"
        self.events = cloud.url(bucket, "deep/events")
        self.latest = cloud.url(bucket, "deep/latest")
        self.letters = cloud.url(bucket, "deep/shop_dead_letters")
        self.storage = delta_options(self.events, cloud.storage)

    def produce(self, rows: int, time: str = "timestamp") -> Pipeline:
        self.file.write_text(
            f"""\
name: shop
sources: {{clicks: {{type: generate, rows: {rows}, bad_ratio: 0.02}}}}
tables:
  events:
    path: {self.events}
    from: clicks
    metadata: true
    partition_by: [event_type]
    schema: {{event_id: long, event_type: string, event_time: {time}}}
  latest:
    path: {self.latest}
    from: clicks
    mode: upsert
    updates: merge_on_read
    keys: event_type
    sequence_by: event_id
    schema: {{event_id: long, event_type: string}}
    properties: {{delta.enableChangeDataFeed: "true", delta.checkpointInterval: "2"}}
storage: {json.dumps(self.cloud.storage)}
flush: {{rows: 100}}
"""
        )
        return Pipeline.from_file(self.file)

    def kill(self, point: str) -> int:
        return run_and_kill(self.file, point)

    def check(self, rows: int) -> None:
        dead = [one["offset"] for one in dead_letters(self.letters, self.storage) if one["table"] == "events"]
        assert_each_once(range(rows), table_ids(self.events, storage=self.storage), dead)
        proof = verify(Pipeline.from_file(self.file), deep=True)
        assert proof.sound, proof
        assert open_any(self.latest, self.storage).log().checkpoints
        self.check_locks()

    def check_locks(self) -> None:
        if isinstance(self.cloud, LockedS3):
            for path in (self.events, self.latest, self.letters):
                table = DeltaTable(path, storage_options=self.storage)
                self.cloud.lock.assert_every_version_went_through(path, table.version() + 1)


@pytest.fixture(params=["s3", "gcs", "azure", "locked"])
def cloud(request: pytest.FixtureRequest) -> ObjectServer:
    """Each of the object stores, and S3 with a lock table in front of its logs."""
    if request.param == "locked":
        return LockedS3(request.getfixturevalue("s3"))
    server: ObjectServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def lake(cloud: ObjectServer, tmp_path: Path) -> Lake:
    return Lake(cloud, tmp_path)


@pytest.mark.parametrize("cloud", ["s3", "gcs", "azure"], indirect=True)
def test_a_run_that_is_killed_goes_on_and_its_tables_are_proved(lake: Lake) -> None:
    run_inline(lake.produce(200))
    pipeline = lake.produce(600)

    codes = [lake.kill("files_written:2"), lake.kill("table_committed:1")]
    run_inline(pipeline)
    run_inline(pipeline)

    assert codes == [-9, -9]
    lake.check(600)
    found = status(pipeline)
    assert [table.lag for table in found.tables] == [0, 0]
    newest = {row["event_type"]: row["event_id"] for row in rows(lake.latest, lake.storage)}
    landed = rows(lake.events, lake.storage)
    assert newest == {
        kind: max(row["event_id"] for row in landed if row["event_type"] == kind)
        for kind in {row["event_type"] for row in landed}
    }


def test_dead_letters_come_back_and_a_table_is_rewound_with_its_positions(lake: Lake) -> None:
    run_inline(lake.produce(100, "timestamp(ms)"))
    pipeline = lake.produce(100)
    (replayed,) = replay(pipeline, DeadLetterFilter(table="events"))

    report = rewind(pipeline, "events", to_version=1)
    replay(pipeline, DeadLetterFilter(table="events"))

    assert (replayed.rows, report.dead_letters_returned) == (98, 98)
    lake.check(100)


def test_a_table_is_looked_after_and_plan_and_commands_see_it(
    lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = lake.produce(400)
    run_inline(pipeline)
    table = open_any(lake.events, lake.cloud.storage)
    before = table_ids(lake.events, storage=lake.storage)

    compacted = compact.run(table, compact.plan(table), INFO, file_writer)
    soon = vacuum.plan(table, retain=0.001, allow_short=True)
    vacuum.run(table, soon, INFO)
    delete.run(table, delete.plan(table, "event_id < 100"), INFO)
    restoring.run(table, restoring.plan(table, table.version - 1), INFO)
    checkpoint.run(table, checkpoint.plan(table))

    assert compacted.after.files < compacted.before.files == len(soon.files)
    assert sorted(table_ids(lake.events, storage=lake.storage)) == sorted(before)
    lake.check_locks()
    lakefeed = in_process(capsys, monkeypatch)
    options = [f"--storage={name}={value}" for name, value in lake.cloud.storage.items()]
    planned, shown, _ = lakefeed("plan", lake.file)
    assert planned == 0 and "events: nothing to change" in shown, shown
    code, said, told = lakefeed("table", "history", lake.events, *options)
    assert code == 0 and f"{table.version}  " in said, told
    drop.run(table, drop.plan(table))
    assert not DeltaTable.is_deltatable(lake.events, storage_options=lake.storage)


def rows(path: str, storage: dict[str, str]) -> list[dict[str, Any]]:
    table = DeltaTable(path, storage_options=storage)
    found: list[dict[str, Any]] = pa.RecordBatchReader.from_stream(table.scan()).read_all().to_pylist()
    return found


def test_options_may_have_the_short_names_of_other_tools(s3: S3Server, azure: AzuriteServer) -> None:
    rivven = {
        "endpoint": s3.endpoint,
        "region": "us-east-1",
        "access_key_id": "key",
        "secret_access_key": "secret",
        "path_style_access": "true",
        "allow_http": "true",
    }
    danube = {
        "s3_endpoint": s3.endpoint,
        "s3_region": "us-east-1",
        "s3_allow_http": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    long = azure.storage
    short = {
        "account": long["AZURE_STORAGE_ACCOUNT_NAME"],
        "access_key": long["AZURE_STORAGE_ACCOUNT_KEY"],
        "endpoint": long["AZURE_STORAGE_ENDPOINT"],
        "allow_http": "true",
    }
    for server, scheme, storage in ((s3, "s3", rivven), (s3, "s3a", danube), (azure, "abfss", short)):
        server.create_bucket(bucket := f"lake-{uuid4().hex[:8]}")
        path = f"{scheme}://{bucket}/events"

        table = LakeTable.create(
            "events",
            path,
            storage,
            open_store(path, storage),
            schema=pa.schema([("id", pa.int64())]),
            partition_by=[],
            properties={},
            transactions={},
            commit_info={},
        )

        assert append(table, Change((), {"a": 1}, {}, {}), retries=0) == 1
        assert (LakeTable.open("events", path, storage, table.store) or table).transactions == {"a": 1}


def test_a_shared_access_signature_or_a_file_with_a_key_opens_a_store(
    azure: AzuriteServer, gcs: GcsServer, tmp_path: Path
) -> None:
    file = tmp_path / "account.json"
    file.write_text(gcs.storage["GOOGLE_SERVICE_ACCOUNT_KEY"])
    without_key = {
        name: value for name, value in azure.storage.items() if name != "AZURE_STORAGE_ACCOUNT_KEY"
    }
    ways: list[tuple[ObjectServer, dict[str, str]]] = [
        (azure, {**without_key, "AZURE_STORAGE_SAS_TOKEN": shared_access_signature()}),
        (gcs, {"GOOGLE_SERVICE_ACCOUNT": str(file), "ALLOW_HTTP": "true"}),
    ]
    for server, storage in ways:
        server.create_bucket(bucket := f"lake-{uuid4().hex[:8]}")
        path = server.url(bucket, "events")

        Feeder(path, storage).append(0)

        assert_each_once(range(10), table_ids(path, storage=server.storage))
