"""Spark's Delta and pipelines on one S3 table at once: by the log store of `deploy/spark` nothing is lost.

Spark reaches the server by two schemes: under `s3a://` it commits by that log store, `s3://` by its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import TableError
from lakefeed.tables.detail.spark_writers import spark_beside
from support.command_line import in_process
from support.delta_spark import DeltaSpark
from support.delta_tables import open_any
from support.feeder import Feeder
from support.ledger import assert_each_once, dead_letters, table_ids
from support.processes import wait_until
from support.s3 import S3Server
from support.spark_on_s3 import log_store_jar, spark_on_s3
from support.unreliable import Fault, UnreliableStore

PIPELINE = """\
import sys
import time
from pathlib import Path
from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
file, end, rows = sys.argv[1], Path(sys.argv[2]), 0
while not end.exists():
    rows += 100
    run_inline(Pipeline.from_file(file, [f"sources.clicks.rows={rows}"]))
    time.sleep(3)
print(rows)
"""
"""A pipeline that is started again and again, each time for the next rows."""


@pytest.fixture(scope="module")
def door(s3: S3Server) -> Iterator[UnreliableStore]:
    with UnreliableStore(s3) as door:
        yield door


@pytest.fixture(scope="module")
def spark(door: UnreliableStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    with spark_on_s3(door.storage, log_store_jar(tmp_path_factory.mktemp("log-store"))) as spark:
        yield spark


@pytest.fixture
def place(s3: S3Server, door: UnreliableStore) -> str:
    """Where a table lies, without a scheme."""
    bucket = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    door.heal()
    return f"{bucket}/events"


def pipeline_file(folder: Path, name: str, seed: int, place: str, storage: Mapping[str, str]) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(
        f"""\
name: {name}
sources: {{clicks: {{type: generate, seed: {seed}, rows: 100, bad_ratio: 0.01}}}}
tables:
  events:
    path: s3://{place}
    from: clicks
    schema: {{event_id: long, event_type: string, brand: string}}
    evolve: ignore
    partition_by: [event_type]
    commit_retries: 50
storage: {json.dumps(storage)}
"""
    )
    return file


@contextmanager
def running(files: Iterable[Path], end: Path) -> Iterator[list[int]]:
    """Pipelines that run as long as the block; then the list holds how many rows each has read."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PIPELINE, str(file), str(end)],
            cwd=end.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for file in files
    ]
    read: list[int] = []
    try:
        yield read
    finally:
        end.touch()
        said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    read += [int(text.split()[-1]) for text in said]


def test_spark_writes_and_rewrites_beside_two_pipelines_and_nothing_is_lost_or_doubled(
    place: str,
    s3: S3Server,
    spark: DeltaSpark,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, names = f"delta.`s3a://{place}`", ("east", "west")
    files = [pipeline_file(tmp_path, name, seed, place, s3.storage) for seed, name in enumerate(names)]
    run_inline(Pipeline.from_file(files[0]))

    with running(files, tmp_path / "end") as read:
        for number in range(1, 5):
            spark.sql(f"INSERT INTO {table} VALUES ({-number}, 'spark', 'none')")
            wait_for_another_version(s3, place)
        spark.sql(f"OPTIMIZE {table}")
        # Delta lets it pass only where nobody has added rows that it might have to change: in a partition.
        spark.sql(
            f"MERGE INTO {table} t USING (SELECT -3 AS id) s ON t.event_id = s.id AND t.event_type = 'spark' "
            "WHEN MATCHED THEN UPDATE SET brand = 'merged'"
        )
        spark.sql(f"DELETE FROM {table} WHERE event_type = 'spark' AND event_id = -4")
    seen = spark.read(f"s3a://{place}").to_pylist()

    ids = table_ids(f"s3://{place}", storage=s3.storage)
    dead = [
        letter["offset"]
        for name in names
        for letter in dead_letters(f"s3://{place.split('/')[0]}/{name}_dead_letters", s3.storage)
    ]
    produced = [*(one for rows in read for one in range(rows)), *range(-3, 0)]
    assert sorted([*ids, *dead]) == sorted(produced)
    assert sorted(row["event_id"] for row in seen) == sorted(ids)
    assert {row["event_id"] for row in seen if row["brand"] == "merged"} == {-3}
    engines = [writer_of(s3, place, version) for version in versions(s3, place)]
    turns = [engine for before, engine in pairwise(engines) if before != engine]
    assert turns.count("spark") >= 3, engines
    lakefeed = in_process(capsys, monkeypatch)
    for file in files:
        _, said, _ = lakefeed("verify", file)
        found = [line.split()[1] for line in said.splitlines() if line.strip().startswith("!")]
        # All but OPTIMIZE: rows that come and go by others are told, and nothing else is wrong.
        assert found == ["foreign:"] * 6, said


@pytest.mark.parametrize("scheme", ["s3a", "s3"])
def test_a_commit_that_came_between_is_kept_by_our_log_store_and_lost_by_deltas_own(
    scheme: str, place: str, s3: S3Server, spark: DeltaSpark, door: UnreliableStore
) -> None:
    feeder = Feeder(f"s3://{place}", s3.storage)
    feeder.append(0)
    door.inject(Fault("paused", "PUT", r"_delta_log/0+2\.json$"))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(spark.sql, f"INSERT INTO delta.`{scheme}://{place}` VALUES (-1)")
        wait_until(lambda: door.met() == [1], 120, lambda: "Spark has not committed")
        version = feeder.append(10)
        door.heal()
        writing.result()

    landed = table_ids(f"s3://{place}", storage=s3.storage)
    told = spark_beside(open_any(f"s3://{place}", s3.storage))
    assert version == 2
    if scheme == "s3a":
        assert_each_once([*range(20), -1], landed)
        assert told is None
        assert feeder.append(20) == 4
    else:
        assert_each_once([*range(10), -1], landed)
        assert told is not None and "give it the log store lakefeed.ConditionalLogStore" in told
        with pytest.raises(TableError, match="version 2 of its log is not the one that was read"):
            feeder.append(20)


@pytest.mark.parametrize("fault", ["lost_answer", "cut"])
def test_a_commit_of_spark_whose_answer_is_lost_lands_once(
    fault: str, place: str, s3: S3Server, spark: DeltaSpark, door: UnreliableStore
) -> None:
    Feeder(f"s3://{place}", s3.storage).append(0)
    door.inject(Fault(fault, "PUT", r"_delta_log/0+2\.json$"))

    spark.sql(f"INSERT INTO delta.`s3a://{place}` VALUES (-1)")

    assert door.met() == [1]
    assert_each_once([*range(10), -1], table_ids(f"s3://{place}", storage=s3.storage))


def wait_for_another_version(s3: S3Server, place: str) -> None:
    before = len(versions(s3, place))
    wait_until(lambda: len(versions(s3, place)) > before, 120, lambda: "no pipeline writes")


def versions(s3: S3Server, place: str) -> list[int]:
    bucket, _, prefix = place.partition("/")
    names = [key.rpartition("/")[2] for key in s3.keys(bucket, f"{prefix}/_delta_log/")]
    return [int(name.removesuffix(".json")) for name in names if re.fullmatch(r"\d{20}\.json", name)]


def writer_of(s3: S3Server, place: str, version: int) -> str:
    bucket, _, prefix = place.partition("/")
    key = f"{prefix}/_delta_log/{version:020d}.json"
    entry = s3.client.get_object(Bucket=bucket, Key=key)["Body"].read()
    return "spark" if b"Apache-Spark" in entry else "lakefeed"
