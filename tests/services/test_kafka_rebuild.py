"""A table that is fed from Kafka is rebuilt only while the topic has all events that it was made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import TopicFactory
from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import DataLoss, UsageError
from lakefeed.reports.verify import verify
from lakefeed.reprocess.rebuild import rebuild
from support.kafka import Broker
from support.ledger import assert_each_once, dead_letters, table_ids
from support.offline import close_consumers


@pytest.fixture(autouse=True)
def no_consumers_are_kept() -> Iterator[None]:
    yield
    close_consumers()


def pipeline(folder: Path, broker: Broker, topic: str, limit: int) -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: kafka, brokers: "{broker.address}", topics: [{topic}]}}}}
tables:
  clicks: {{path: clicks, from: clicks, schema: {{event_id: long}}, expect: {{low: event_id < {limit}}}}}
"""
    )
    return Pipeline.from_file(file)


def test_retention_of_the_topic_decides_whether_a_table_can_be_rebuilt(
    tmp_path: Path, broker: Broker, topic: TopicFactory
) -> None:
    name = topic()
    broker.produce(name, [json.dumps({"event_id": number}).encode() for number in range(20)])
    run_inline(pipeline(tmp_path, broker, name, 5))
    done = rebuild(pipeline(tmp_path, broker, name, 12), "clicks", run_inline)
    rows, letters = table_ids(tmp_path / "clicks"), dead_letters(tmp_path / "shop_dead_letters")
    broker.delete_records(name, 0, 3)

    with pytest.raises(DataLoss) as refused:
        rebuild(pipeline(tmp_path, broker, name, 15), "clicks", run_inline)

    assert (done.rows_now, done.rows_then, done.dead_letters) == (5, 12, 8)
    assert_each_once(range(20), rows, [json.loads(one["payload"])["event_id"] for one in letters])
    assert (
        f"source clicks no longer has all events it was made of: {name}-0 begins at offset 3, and the table "
        "has read it from offset 0; nothing was changed."
    ) in str(refused.value)
    assert sorted(table_ids(tmp_path / "clicks")) == sorted(rows)
    assert verify(pipeline(tmp_path, broker, name, 12)).sound


def test_table_that_other_programs_write_to_is_made_anew_at_another_path(
    tmp_path: Path, broker: Broker, topic: TopicFactory
) -> None:
    name = topic()
    broker.produce(name, [json.dumps({"event_id": number}).encode() for number in range(20)])

    def shared(path: str, limit: int) -> Pipeline:
        file = tmp_path / "shop.yaml"
        pipeline(tmp_path, broker, name, limit)
        file.write_text(file.read_text().replace("{path: clicks", f"{{path: {path}, app_id: ingest"))
        return Pipeline.from_file(file)

    run_inline(shared("clicks", 5))
    with pytest.raises(UsageError, match="other programs write to it as well") as refused:
        rebuild(shared("clicks", 12), "clicks", run_inline)
    run_inline(shared("other", 12))

    assert "Give it another `path`: the next run makes that table of all events" in str(refused.value)
    letters = dead_letters(tmp_path / "shop_dead_letters")
    rows = table_ids(tmp_path / "other")
    assert sorted(rows) == list(range(12))
    assert_each_once(range(20), rows, [json.loads(one["payload"])["event_id"] for one in letters])
