"""Growth: the same batch while a table, a pipeline, a topic or the batch itself is larger."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from figure import Asked, Figure, say
from grown import SCHEMA, table_with_files, table_with_versions
from tally import Tally, tally

from lakefeed.sources.generate.clickstream import payloads
from support.kafka import Broker

ROWS = 10_000
WARMUP = 10
BATCHES = 110
"""More than a checkpoint's interval, so that the mean has one in it."""
FLAT, NEARLY_FLAT = 1.5, 1.3
MEMORY = 2_000.0


def measure(asked: Asked) -> Iterator[Figure]:
    """Files, versions, tables, partitions, rows."""
    if asked.wants("files"):
        yield from _grown(asked, "files", table_with_files, [0, 10_000, 100_000])
    if asked.wants("versions"):
        yield from _grown(asked, "versions", table_with_versions, [0, 1_000, 20_000])
    with tempfile.TemporaryDirectory(prefix="lakefeed-growth-") as folder, Broker(lasting=True) as broker:
        if asked.wants("tables"):
            yield from _tables(asked, Path(folder), broker)
        if asked.wants("partitions"):
            yield from _partitions(asked, Path(folder), broker)
        if asked.wants("rows"):
            yield from _rows(asked, Path(folder))


def _grown(asked: Asked, what: str, make: Callable[[Path, int], None], counts: list[int]) -> Iterator[Figure]:
    first: Tally | None = None
    for count in (asked.of(count, 0) for count in counts):
        with tempfile.TemporaryDirectory(prefix="lakefeed-growth-") as folder:
            make(Path(folder) / "events", count)
            batches = asked.of(BATCHES, 20)
            told = _pipeline(Path(folder), {"busy": _made(ROWS * (WARMUP + batches))}, {"events": "busy"})
            found = tally(told, warmup=WARMUP, batches=batches)
        first = first or found
        yield from _batch(f"{count:,} {what}", found, first, f"0 {what}", FLAT)


def _tables(asked: Asked, folder: Path, broker: Broker) -> Iterator[Figure]:
    """One table is fed, or five; the others have a source in which nothing comes, or one for each."""
    batches = asked.of(40, 10)
    told = _made(ROWS * (WARMUP + batches))
    five: Tally | None = None
    for count in [1, 5, 20, 100]:
        fed = min(count, 5)
        broker.create_topic(f"idle{count}", 4)
        sources = {"busy": told} | ({"idle": _topic(broker, f"idle{count}")} if count > fed else {})
        tables = {f"t{at:03}": "busy" if at < fed else "idle" for at in range(count)}
        pipeline = _pipeline(folder / f"tables{count}", sources, tables)
        found = tally(pipeline, warmup=WARMUP, batches=batches, rest=10.0)
        name = f"{count} tables, {count - fed} idle"
        yield from _batch(name, found, five if count > 5 else None, "5 tables", NEARLY_FLAT)
        yield Figure(f"{name}: at rest", found.idle_cpu * 100, "% of a core")
        five = found if count == 5 else five
    for count in [1, 15]:
        topics = [f"alone{count}-{at}" for at in range(count)]
        for topic in topics:
            broker.create_topic(topic, 1)
        sources = {"busy": told} | {topic: _topic(broker, topic) for topic in topics}
        tables = {f"t{at:03}": "busy" for at in range(5)} | {f"of-{topic}": topic for topic in topics}
        pipeline = _pipeline(folder / f"sources{count}", sources, tables)
        found = tally(pipeline, warmup=WARMUP, batches=batches, rest=10.0)
        name = f"5 tables, {count} idle with a source each"
        yield from _batch(name, found, five, "5 tables")
        yield Figure(f"{name}: at rest", found.idle_cpu * 100, "% of a core")
        yield Figure(f"{name}: memory", found.peak, "MB")


def _partitions(asked: Asked, folder: Path, broker: Broker) -> Iterator[Figure]:
    batches, rows = asked.of(20, 5), asked.of(100_000, 10_000)
    first: Tally | None = None
    for count in [1, 16, 128]:
        topic = f"of{count}"
        broker.create_topic(topic, count)
        _fill(broker, topic, count, rows * (5 + batches))
        told = _pipeline(folder / topic, {"busy": _topic(broker, topic)}, {"events": "busy"}, rows)
        found = tally(told, warmup=5, batches=batches)
        first = first or found
        yield from _batch(f"{rows:,} rows of {count} partitions", found, first, "1 partition")


def _rows(asked: Asked, folder: Path) -> Iterator[Figure]:
    """The limit of memory is one that people set: the default of a gigabyte for the JVM."""
    first: Tally | None = None
    for rows, batches in [(1_000, 40), (100_000, 20), (3_000_000, 3)]:
        rows = asked.of(rows, 1_000)
        told = _pipeline(
            folder / f"rows{rows}", {"busy": _made(rows * (2 + batches))}, {"events": "busy"}, rows
        )
        found = tally(told, warmup=2, batches=batches)
        each = found.median / rows * 1e6
        ratio = None if first is None else each / (first.median / 1_000 * 1e6)
        first = first or found
        yield Figure(f"batches of {rows:,}: a row", each, "us", ratio, "1,000 rows" if ratio else "")
        yield Figure(f"batches of {rows:,}: a row, CPU", found.cpu / rows * 1e6, "us")
        yield Figure(
            f"batches of {rows:,}: memory", found.peak, "MB", None, "", "at most 2 GB", found.peak <= MEMORY
        )


def _batch(
    name: str, found: Tally, beside: Tally | None, what: str, most: float | None = None
) -> Iterator[Figure]:
    """The figures of a batch; the goal is one of its median."""
    say(f"{name}: {found.median * 1000:.0f} ms, {found.cpu * 1000:.0f} ms of CPU")
    rows = [
        ("", found.median, beside and beside.median),
        (", mean", found.mean, beside and beside.mean),
        (", CPU", found.cpu, beside and beside.cpu),
        (", commit", sorted(found.commits)[len(found.commits) // 2], None),
    ]
    for tail, value, other in rows:
        ratio = value / other if other and beside is not found else None
        wanted = most is not None and ratio is not None and tail in ("", ", mean")
        yield Figure(
            f"{name}: batch{tail}",
            value * 1000,
            "ms",
            ratio,
            what if ratio is not None else "",
            f"at most {most} x" if wanted else "",
            ratio <= most if wanted and ratio is not None and most is not None else None,
        )


def _pipeline(
    folder: Path, sources: dict[str, Any], tables: dict[str, str], rows: int = ROWS
) -> dict[str, Any]:
    return {
        "name": "growth",
        "sources": sources,
        "tables": {
            name: {"path": str(folder / name), "from": source, "schema": SCHEMA}
            for name, source in tables.items()
        },
        "flush": {"rows": rows, "bytes": "4GB"},
        "state": str(folder / "state"),
        "upkeep": "off",
    }


def _made(rows: int) -> dict[str, Any]:
    return {"type": "generate", "rows": rows, "partitions": 4}


def _topic(broker: Broker, name: str) -> dict[str, Any]:
    return {"type": "kafka", "brokers": broker.address, "topics": [name], "format": "json"}


def _fill(broker: Broker, topic: str, partitions: int, rows: int) -> None:
    import numpy as np

    settings = {
        "bootstrap.servers": broker.address,
        "linger.ms": 50,
        "batch.num.messages": 50_000,
        "queue.buffering.max.messages": 500_000,
        "compression.type": "lz4",
    }
    producer = Producer(settings)
    at = 0
    for first in range(0, rows, 50_000):
        for payload in payloads(0, np.arange(first, min(first + 50_000, rows), dtype=np.int64)):
            producer.produce(topic, payload, partition=at % partitions)
            at += 1
        producer.flush()
