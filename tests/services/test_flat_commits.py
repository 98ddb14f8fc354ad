"""Commits to an object store: one request each, however large the table, and of two writers one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import Fenced
from lakefeed.tables.allow_vectors import allow_vectors
from lakefeed.tables.log.write import OWN_ENTRY
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.keyed.merge_on_read import MergeOnRead
from support.feeder import Feeder
from support.keyed_table import KeyedTable
from support.ledger import assert_each_once, table_ids
from support.s3 import S3Server
from support.unreliable import UnreliableStore


@pytest.fixture(scope="module")
def door(s3: S3Server) -> Iterator[UnreliableStore]:
    with UnreliableStore(s3) as door:
        yield door


@pytest.fixture
def path(s3: S3Server) -> str:
    bucket = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    return f"s3://{bucket}/events"


def test_a_small_batch_costs_two_writes_and_one_look(path: str, door: UnreliableStore, s3: S3Server) -> None:
    feeder = Feeder(path, door.storage)
    feeder.append(0)
    door.requests()

    for first in range(10, 50, 10):
        feeder.append(first)
    asked = door.requests()

    methods = [request.split(" ")[0] for request in asked]
    assert {method: methods.count(method) for method in set(methods)} == {"PUT": 8, "HEAD": 4}, asked
    info = DeltaTable(path, storage_options=s3.storage).history(1)[0]
    assert info["engineInfo"].startswith(OWN_ENTRY)
    assert_each_once(range(50), table_ids(path, storage=s3.storage))


def test_two_writers_lose_and_double_nothing_and_see_each_other(path: str, s3: S3Server) -> None:
    one, other = Feeder(path, s3.storage, "0"), Feeder(path, s3.storage, "1")

    for first in range(0, 60, 20):
        one.append(first)
        other.append(first + 10)
    write_deltalake(
        path, pa.table({"event_id": pa.array([60], pa.int64())}), mode="append", storage_options=s3.storage
    )
    version = one.append(61, 1)

    assert version == 8
    assert one.table.transactions == {"shop/clicks/0": 61, "shop/clicks/1": 59}
    assert_each_once(range(62), table_ids(path, storage=s3.storage))


def test_a_second_instance_is_refused_by_the_positions_in_the_log(path: str, s3: S3Server) -> None:
    first, second = Feeder(path, s3.storage), Feeder(path, s3.storage)
    first.append(0)

    with pytest.raises(Fenced, match="another instance of this pipeline has written"):
        second.append(0)

    assert_each_once(range(10), table_ids(path, storage=s3.storage))


def test_a_log_that_was_cleaned_up_by_others_is_read_anew(path: str, s3: S3Server) -> None:
    feeder = Feeder(path, s3.storage)
    feeder.append(0)
    bucket, key = path.removeprefix("s3://").split("/")
    delta = DeltaTable(path, storage_options=s3.storage)
    write_deltalake(delta, pa.table({"event_id": pa.array([10], pa.int64())}), mode="append")
    delta.create_checkpoint()
    for version in range(2):
        s3.client.delete_object(Bucket=bucket, Key=f"{key}/_delta_log/{version:020d}.json")

    feeder.append(11, 1)
    feeder.append(12, 1)

    assert feeder.table.version == 4
    assert_each_once(range(13), table_ids(path, storage=s3.storage))


@pytest.mark.parametrize("layout", [CopyOnWrite(), MergeOnRead()], ids=["copy on write", "merge on read"])
def test_changes_of_rows_and_their_feed_are_written_to_a_store(
    path: str, s3: S3Server, layout: CopyOnWrite | MergeOnRead
) -> None:
    schema = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("name", pa.string())])
    table = KeyedTable(
        path,
        schema,
        KeyRules(("id",), ("seq",)),
        layout=layout,
        storage=s3.storage,
        properties={"delta.enableChangeDataFeed": "true"},
    )
    if isinstance(layout, MergeOnRead):
        allow_vectors(table.table, {"kind": "test"})
    table.apply(*({"id": number, "seq": 1, "name": "old"} for number in range(20)))

    table.apply({"id": 3, "seq": 2, "name": "new"}, {"id": 4, "seq": 2, "op": "delete"})
    table.restart()
    table.apply({"id": 5, "seq": 2, "name": "new"})

    names = {row["id"]: row["name"] for row in table.rows()}
    assert names == {number: "new" if number in (3, 5) else "old" for number in range(20) if number != 4}
    told = DeltaTable(path, storage_options=s3.storage).load_cdf(starting_version=table.table.version)
    types = pa.RecordBatchReader.from_stream(told).read_all()["_change_type"].to_pylist()
    assert sorted(types) == ["update_postimage", "update_preimage"]
    entry = s3.client.get_object(
        Bucket=path.split("/")[2], Key=f"events/_delta_log/{table.table.version:020d}.json"
    )
    kinds = [next(iter(json.loads(line))) for line in entry["Body"].read().splitlines()]
    assert "cdc" in kinds


def test_a_run_costs_each_table_two_writes_and_one_look_for_a_batch(
    path: str, door: UnreliableStore, tmp_path: Path
) -> None:
    file = tmp_path / "shop.yaml"

    def run(rows: int) -> Counter[str]:
        file.write_text(
            f"""\
name: shop
sources: {{clicks: {{type: generate, rows: {rows}}}}}
tables: {{events: {{path: {path}, from: clicks, schema: {{event_id: long}}, evolve: {{new_column: ignore}}}}}}
storage: {json.dumps(door.storage)}
flush: {{rows: 100}}
"""
        )
        door.requests()
        run_inline(Pipeline.from_file(file))
        return Counter(request.split(" ")[0] for request in door.requests())

    run(200)
    few, many = run(700), run(2000)

    # Five batches, then thirteen: what a run asks at its start counts in neither.
    assert (many["PUT"] - few["PUT"], many["HEAD"] - few["HEAD"]) == (16, 8)
    assert few["PUT"] == 10
