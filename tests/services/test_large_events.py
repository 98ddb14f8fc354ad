"""Events of megabytes: memory is bounded by bytes, whatever the number of events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from support import lakefeed
from support.kafka import Broker
from support.ledger import assert_each_once, table_ids

MB = 2**20
MOST_MEMORY = 2 * 1024 * MB


@pytest.fixture(scope="module")
def large_broker() -> Iterator[Broker]:
    with Broker(max_message_bytes=120 * MB) as broker:
        yield broker


def event(number: int, size: int) -> bytes:
    return json.dumps({"event_id": number, "text": "x" * size}).encode()


def pipeline(folder: Path, broker: Broker, topic: str) -> Path:
    file = folder / "large.yaml"
    file.write_text(
        f"""\
name: large
sources:
  uploads: {{type: kafka, brokers: "{broker.address}", topics: {topic}, format: json}}
tables:
  events: {{path: events, from: uploads, schema: {{event_id: long not null, text: string}}}}
flush: {{bytes: 64MB}}
"""
    )
    return file


def run_and_measure(file: Path) -> int:
    """Drain the topic with the command line; the most memory that was seen."""
    most, looked_at = 0, 0.0
    with lakefeed.start("run", str(file), "--once") as process:

        def ended() -> bool:
            nonlocal most, looked_at
            # Looking costs as much as a small batch.
            if time.monotonic() - looked_at > 1:
                most, looked_at = max(most, process.memory()), time.monotonic()
            return not process.running

        process.wait_for(ended, 240)
        assert process.wait() == 0, process.stderr
    return most


def test_300_events_of_5_mb_land_in_batches_of_their_bytes_within_2_gb(
    large_broker: Broker, tmp_path: Path
) -> None:
    large_broker.create_topic("uploads", 2)
    large_broker.produce("uploads", (event(number, 5 * MB) for number in range(300)))

    most = run_and_measure(pipeline(tmp_path, large_broker, "uploads"))

    assert_each_once(range(300), table_ids(tmp_path / "events"))
    assert most < MOST_MEMORY
    commits = [
        json.loads(one["lakefeed"])
        for one in DeltaTable(tmp_path / "events").history()
        if json.loads(one["lakefeed"])["kind"] == "rows"
    ]
    assert max(one["rows"] for one in commits) * 5 <= 2 * 64


def test_one_event_of_100_mb_among_small_ones_lands_within_2_gb(large_broker: Broker, tmp_path: Path) -> None:
    large_broker.create_topic("mixed")
    small = [event(number, 100) for number in range(1, 2001)]
    large_broker.produce("mixed", [*small[:1000], event(0, 100 * MB), *small[1000:]])

    most = run_and_measure(pipeline(tmp_path, large_broker, "mixed"))

    assert_each_once(range(2001), table_ids(tmp_path / "events"))
    assert most < MOST_MEMORY
