"""An object store on a bad day: no event is lost or doubled, and the message says what the store did."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from lakefeed import Pipeline, TableError
from lakefeed.errors import Fenced, StoreUnavailable
from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.stores import delta_options, open_store
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from support.ledger import assert_each_once, dead_letters, table_ids
from support.object_server import ObjectServer
from support.processes import wait_until
from support.s3 import S3Server
from support.unreliable import Fault, UnreliableStore

SCHEMA = pa.schema([("event_id", pa.int64())])
PARTITION = "shop/clicks/0"
COMMIT = r"_delta_log/\d+\.json"
# Requests are given up by their number: on a busy machine, any time may pass before the last of them.
IMPATIENT = {"timeout": "1s", "retry_timeout": "60s", "max_retries": "2"}


class Tables:
    """One table behind an unreliable store."""

    def __init__(self, server: ObjectServer, door: UnreliableStore) -> None:
        bucket = f"lake-{uuid4().hex[:8]}"
        server.create_bucket(bucket)
        self.path, self.server, self.door = server.url(bucket, "events"), server, door
        self.storage = {**door.storage, **IMPATIENT}
        self.store = open_store(self.path, self.storage)
        self.table = LakeTable.create(
            "events",
            self.path,
            self.storage,
            self.store,
            schema=SCHEMA,
            partition_by=[],
            properties={},
            transactions={PARTITION: -1},
            commit_info={"pipeline": "shop", "source": "clicks", "kind": "create"},
        )

    def read_ten(self, retries: int = 1) -> int:
        """Write and append the ten events that come next by the table's position."""
        start = self.table.transactions[PARTITION] + 1
        writer = TableWriter(self.store, FileTarget(SCHEMA))
        writer.write(pa.record_batch({"event_id": pa.array(range(start, start + 10))}, schema=SCHEMA))
        files = writer.close()
        commit_info = {"pipeline": "shop", "source": "clicks", "kind": "rows", "rows": 10}
        commit_info |= {"ranges": {"0": [start, start + 10, 10, 0]}}
        change = Change(files, {PARTITION: start + 9}, {PARTITION: start - 1}, commit_info)
        return append(self.table, change, retries=retries, sleep=lambda seconds: None)

    def ids(self) -> list[int]:
        return table_ids(self.path, storage=delta_options(self.path, self.server.storage))


@pytest.fixture(scope="module")
def door(s3: S3Server) -> Iterator[UnreliableStore]:
    with UnreliableStore(s3) as door:
        yield door


@pytest.fixture
def lake(s3: S3Server, door: UnreliableStore) -> Tables:
    door.heal()
    return Tables(s3, door)


@pytest.mark.parametrize("kind", ["unavailable", "lost_answer", "slow", "silent"])
@pytest.mark.parametrize("path", [COMMIT, r"part-.*\.parquet"], ids=["commit", "data file"])
def test_request_that_fails_once_is_made_again_and_lands_once(lake: Tables, kind: str, path: str) -> None:
    lake.door.inject(Fault(kind, path=path))

    lake.read_ten()
    lake.read_ten()

    assert lake.door.met() == [1]
    assert_each_once(range(20), lake.ids())


def test_commit_that_the_store_claims_to_have_already_is_made_again(lake: Tables) -> None:
    lake.door.inject(Fault("precondition", path=COMMIT))

    lake.read_ten()

    assert lake.door.met() == [1]
    assert_each_once(range(10), lake.ids())


def test_commit_whose_every_answer_is_lost_lands_once(lake: Tables) -> None:
    lake.door.inject(Fault("lost_answer", path=COMMIT, times=100))

    lake.read_ten()
    lake.read_ten()

    assert lake.door.met()[0] >= 2
    assert_each_once(range(20), lake.ids())


def test_commit_that_landed_while_the_store_went_away_is_not_repeated_later(lake: Tables) -> None:
    lake.door.inject(Fault("lost_answer", path=COMMIT))
    lake.door.inject(Fault("unavailable", path=r"_delta_log/0*1\.json", method="GET", times=100))
    lake.door.inject(Fault("unavailable", path=COMMIT, times=100))

    with pytest.raises(StoreUnavailable, match=r"the store does not answer"):
        lake.read_ten()
    landed = lake.ids()
    lake.door.heal()
    with pytest.raises(Fenced):
        lake.read_ten()
    lake.table.refresh()
    lake.read_ten()

    assert_each_once(range(10), landed)
    assert_each_once(range(20), lake.ids())


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("unavailable", "SlowDown: Please reduce your request rate."),
        ("silent", "operation timed out"),
    ],
)
def test_store_that_stays_away_is_told_as_something_that_passes(lake: Tables, kind: str, told: str) -> None:
    lake.door.inject(Fault(kind, path="part-", times=100))

    with pytest.raises(StoreUnavailable) as away:
        lake.read_ten()

    assert str(away.value) == (
        f"{lake.path}: the store does not answer: {told}\n"
        "The write is tried again; check that the store can be reached."
    )
    assert away.value.retryable


def test_log_that_was_replaced_on_the_store_stops_the_table_before_its_next_commit(
    lake: Tables, s3: S3Server
) -> None:
    for _ in range(3):
        lake.read_ten()
    bucket, key = lake.path.removeprefix("s3://").split("/")
    entries = s3.client.list_objects_v2(Bucket=bucket, Prefix=f"{key}/_delta_log/")["Contents"]
    newest = sorted(entry["Key"] for entry in entries)[-1]
    # As a writer does that does not ask whether there is one.
    s3.client.put_object(Bucket=bucket, Key=newest, Body=b'{"commitInfo":{"operation":"WRITE"}}')

    with pytest.raises(TableError, match="version 3 of its log is not the one that was read") as stopped:
        lake.read_ten()

    assert not stopped.value.retryable
    assert_each_once(range(20), lake.ids())


def test_store_that_refuses_stops_the_table_at_once(lake: Tables) -> None:
    lake.door.inject(Fault("refused", path=COMMIT, times=100, text="Not yours."))

    with pytest.raises(TableError) as refused:
        lake.read_ten()

    assert str(refused.value).startswith(f"{lake.path}: the store refused access: AccessDenied: Not yours.\n")
    assert not refused.value.retryable


@pytest.mark.parametrize("server", ["s3", "gcs", "azure"])
def test_files_and_commits_to_each_cloud_land_once_whatever_becomes_of_their_answers(
    server: str, request: pytest.FixtureRequest
) -> None:
    with UnreliableStore(request.getfixturevalue(server)) as door:
        lake = Tables(request.getfixturevalue(server), door)
        kinds = ["unavailable", "lost_answer", "cut", "slow"]
        faults = [Fault(kind, path=r"part-.*\.parquet") for kind in kinds]
        # Only a commit has a condition.
        faults += [Fault(kind, path=COMMIT) for kind in [*kinds, "precondition"]]

        for fault in faults:
            door.inject(fault)
            lake.read_ten(retries=3)
        met = door.met()

        assert met == [1] * len(faults)
        assert_each_once(range(10 * len(faults)), lake.ids())
        door.inject(Fault("refused", path=COMMIT, times=100))
        with pytest.raises(TableError, match="the store refused access"):
            lake.read_ten()


@pytest.mark.usefixtures("spark")
def test_run_through_a_store_that_fails_again_and_again_lands_every_event_once(
    s3: S3Server, door: UnreliableStore, tmp_path: Path
) -> None:
    door.heal()
    bucket = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 1000, bad_ratio: 0.05}}}}
tables: {{events: {{path: "s3://{bucket}/events", from: clicks, schema: {{event_id: long}}}}}}
storage: {json.dumps({**door.storage, "max_retries": "2"})}
flush: {{rows: 250}}
give_up_after: 60s
"""
    )
    for fault in (
        Fault("lost_answer", path=r"events/_delta_log/0*2\.json"),
        Fault("unavailable", path=r"events/part-", times=4),
        Fault("unavailable", path=r"dead_letters/_delta_log/0*1\.json", times=4),
        Fault("precondition", path=r"events/_delta_log/0*3\.json"),
        Fault("unavailable", method="GET", path=r"events/_delta_log/0*3\.json", times=4),
    ):
        door.inject(fault)

    Pipeline.from_file(file).run(once=True)
    met = door.met()

    assert all(met), met
    dead = [one["offset"] for one in dead_letters(f"s3://{bucket}/shop_dead_letters", s3.storage)]
    assert_each_once(range(1000), table_ids(f"s3://{bucket}/events", storage=s3.storage), dead)


@pytest.mark.usefixtures("spark")
def test_bucket_that_is_away_holds_up_no_table_on_the_disk(
    s3: S3Server, door: UnreliableStore, tmp_path: Path
) -> None:
    door.heal()
    bucket = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    file = tmp_path / "shop.yaml"
    storage = json.dumps({**door.storage, **IMPATIENT})
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 1000}}}}
tables:
  here: {{path: here, from: clicks, schema: {{event_id: long}}}}
  there: {{path: "s3://{bucket}/there", from: clicks, schema: {{event_id: long}}, storage: {storage}}}
flush: {{rows: 250}}
"""
    )
    door.inject(Fault("unavailable", path=r"there/_delta_log/0*1\.json", times=1000))
    run = threading.Thread(target=lambda: Pipeline.from_file(file).run(once=True))
    run.start()
    try:
        wait_until(lambda: len(table_ids(tmp_path / "here")) == 1000, 120, lambda: "held up")
        away = table_ids(f"s3://{bucket}/there", storage=s3.storage)
    finally:
        door.heal()
        run.join(120)

    assert away == []
    assert_each_once(range(1000), table_ids(tmp_path / "here"))
    assert_each_once(range(1000), table_ids(f"s3://{bucket}/there", storage=s3.storage))
