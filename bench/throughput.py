"""Rows per second from Kafka to a table: Lakefeed, plain PySpark and the bare limit, workload by workload."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from figure import Asked, Figure, say
from workload import NARROW_TOPIC, PARTITIONS, WORKLOADS, Workload, produce

from support.kafka import Broker

HERE = Path(__file__).resolve().parent
ROWS = 4_000_000
BATCHES = 8
WARM_UP = 2
"""Batches that do not count."""

OF_PLAIN = {"narrow JSON": 3.0, "wide JSON": 2.5, "Avro": 2.5, "1% malformed": 2.5}
OF_PLAIN_SQL = {"where and select": None, "a function of Spark's": 1.5}
"""Times plain PySpark with the same SQL, where something is wanted."""
OF_NO_SQL = {"where and select": 0.8, "a function of Spark's": None}
"""Of the rate of the same events without SQL."""
OF_BARE = 0.75
OF_UNPARTITIONED = 0.7


def measure(asked: Asked) -> Iterator[Figure]:
    """Every workload in turn, from one broker."""
    rows = asked.of(ROWS)
    with Broker(lasting=True) as broker:
        full: dict[str, float] = {}
        unpartitioned = 0.0
        for work in WORKLOADS:
            if not asked.wants(work.name):
                continue
            if work.topic.name not in full:
                broker.create_topic(work.topic.name, PARTITIONS)
                say(f"  producing {_share(work, rows):,} events, {work.topic.name} ...")
                full[work.topic.name] = produce(broker.address, work.topic, _share(work, rows))
            rate = rate_of("lakefeed", work, broker.address, rows)
            if work.topic == NARROW_TOPIC and not unpartitioned:
                unpartitioned = rate
            yield from _beside(work, broker.address, rows, rate, unpartitioned)
            if work.topic.name not in {later.topic.name for later in WORKLOADS[WORKLOADS.index(work) + 1 :]}:
                broker.delete_topic(work.topic.name)


def _beside(work: Workload, brokers: str, rows: int, rate: float, unpartitioned: float) -> Iterator[Figure]:
    if work.name in OF_PLAIN_SQL:
        yield from _sql(work, brokers, rows, rate, unpartitioned)
        return
    if work.name not in OF_PLAIN:
        ratio = rate * work.tables / unpartitioned
        goal = f"at least {OF_UNPARTITIONED:.0%} of one table"
        yield Figure(work.name, rate, "events/s", ratio, "one table", goal, ratio >= OF_UNPARTITIONED)
        return
    plain = rate_of("plain PySpark", work, brokers, rows)
    wanted = OF_PLAIN[work.name]
    goal = f"at least {wanted:g} times plain PySpark"
    yield Figure(work.name, rate, "rows/s", rate / plain, "plain PySpark", goal, rate / plain >= wanted)
    yield Figure(f"{work.name}, plain PySpark", plain, "rows/s")
    bare = rate_of("the bare limit", work, brokers, rows)
    reached = rate / bare >= OF_BARE if work.topic == NARROW_TOPIC else None
    goal = f"at least {OF_BARE:.0%} of it" if reached is not None else ""
    yield Figure(f"{work.name}, the bare limit", bare, "rows/s", rate / bare, "it", goal, reached)


def _sql(work: Workload, brokers: str, rows: int, rate: float, without: float) -> Iterator[Figure]:
    """Beside the same events without SQL, and beside plain PySpark with the same SQL."""
    share, wanted = rate / without, OF_NO_SQL[work.name]
    goal = "" if wanted is None else f"at least {wanted:.0%} of it"
    reached = None if wanted is None else share >= wanted
    yield Figure(work.name, rate, "rows/s", share, "no SQL", goal, reached)
    plain = rate_of("plain PySpark", work, brokers, rows)
    times, wanted = rate / plain, OF_PLAIN_SQL[work.name]
    goal = "" if wanted is None else f"at least {wanted:g} times it"
    reached = None if wanted is None else times >= wanted
    yield Figure(f"{work.name}, plain PySpark", plain, "rows/s", times, "it", goal, reached)


def rate_of(who: str, work: Workload, brokers: str, rows: int) -> float:
    """Events per second from the end of the warm-up to the last commit."""
    rows = _share(work, rows)
    batch = rows // BATCHES
    with tempfile.TemporaryDirectory(prefix="lakefeed-bench-") as folder:
        arguments = [who, work.name, brokers, str(rows), str(batch), folder]
        command = [sys.executable, str(HERE / "contestants.py"), *arguments]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=1200, check=True, cwd=folder
        )
    batches = [tuple(one) for one in json.loads(done.stdout.splitlines()[-1])]
    read = sum(count for _, count in batches)
    # A route reads its first batch again when it has made its tables.
    assert read >= rows, f"{who} read {read} of {rows} events of {work.name}"
    first = len(batches) * WARM_UP // BATCHES
    rate = sum(count for _, count in batches[first:]) / (batches[-1][0] - batches[first - 1][0])
    say(f"  {work.name}, {who}: {rate:,.0f} events/s")
    return rate


def _share(work: Workload, rows: int) -> int:
    """How many events the topic has: as many in each of its partitions, and whole batches."""
    least = BATCHES * PARTITIONS
    return int(rows * work.topic.share) // least * least
