"""Every pipeline in examples/ runs against real services, as a reader would run it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from deltalake import DeltaTable

from conftest import TopicFactory
from lakefeed import Pipeline
from lakefeed.sources.generate.clickstream import payloads
from support.kafka import Broker
from support.ledger import assert_each_once, dead_letters, table_ids
from support.s3 import S3Server

EXAMPLES = Path(__file__).parents[2] / "examples"
EVENTS = 500

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def example(tmp_path: Path) -> Callable[[str], Pipeline]:
    """Loads an example from a copy, so that its state and its lake lie in the test's folder."""

    def load(name: str) -> Pipeline:
        shutil.copy(EXAMPLES / name, tmp_path / name)
        return Pipeline.from_file(tmp_path / name)

    return load


@pytest.fixture
def clicks(broker: Broker, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic with shop events and one broken payload, named by the variables that the examples read."""
    name = topic(partitions=2)
    broker.produce(name, payloads(0, np.arange(EVENTS, dtype=np.int64)))
    broker.produce(name, [b'{"event_id": '])
    monkeypatch.setenv("KAFKA_BROKERS", broker.address)
    monkeypatch.setenv("KAFKA_TOPIC", name)
    return name


def test_no_example_goes_without_a_test() -> None:
    found = {file.name for file in EXAMPLES.iterdir()}

    of_schedulers = {"airflow_dag.py", "dagster_asset.py"}
    assert found == {"generate.yaml", "kafka.yaml", "kafka-to-s3.yaml"} | of_schedulers


def test_the_generate_example_fills_a_table_that_is_partitioned_by_day(
    example: Callable[[str], Pipeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWS", "20000")

    example("generate.yaml").run(once=True)

    assert len(table_ids(tmp_path / "lake" / "events")) == 19_980
    assert len(dead_letters(tmp_path / "lake" / "generate-example_dead_letters")) == 20
    assert DeltaTable(tmp_path / "lake" / "events").metadata().partition_columns == ["day"]


def test_the_kafka_example_lands_every_event_and_its_origin(
    example: Callable[[str], Pipeline], clicks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "somewhere"
    monkeypatch.setenv("LAKE", str(lake))

    example("kafka.yaml").run(once=True)

    rows = DeltaTable(lake / "clicks").to_pyarrow_table()
    assert_each_once(range(EVENTS), rows.column("event_id").to_pylist())
    assert set(rows.column("_topic").to_pylist()) == {clicks}
    assert "brand" in rows.column_names, "a column that the schema does not declare is added"
    assert [letter["code"] for letter in dead_letters(lake / "dead_letters")] == ["bad_json"]


def test_the_s3_example_lands_every_event_in_the_bucket(
    example: Callable[[str], Pipeline], clicks: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.create_bucket("lake-example")
    monkeypatch.setenv("LAKE_BUCKET", "lake-example")
    for name, value in s3.storage.items():
        monkeypatch.setenv(name, value)

    example("kafka-to-s3.yaml").run(once=True)

    assert_each_once(range(EVENTS), table_ids("s3://lake-example/clicks", storage=s3.storage))
    letters = dead_letters("s3://lake-example/kafka-to-s3-example_dead_letters", s3.storage)
    assert [letter["code"] for letter in letters] == ["bad_json"]
