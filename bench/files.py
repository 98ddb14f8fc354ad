"""Rows per second from files to a table, beside Spark's file stream and Kafka; and how long a listing takes.

`python files.py plain FORMAT SCHEMA FILES FOLDER` is plain PySpark, as a process of its own.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCHEMA = "event_id long, user_id long, price double, kind string"
NARROW = (
    "event_id long, event_time timestamp, event_type string, product_id long, category string, brand string, "
    "price double, user_session string"
)
"""The events of the part `throughput`, so that files can be compared with Kafka."""
LIMIT = 900.0


@dataclass(frozen=True)
class Work:
    """Some files of one format; `together` of them are a batch."""

    name: str
    format: str
    rows: int
    files: int
    together: int
    goal: float | None
    """Times plain PySpark; the one with none is to be as fast as events from Kafka."""
    schema: str = SCHEMA


WORKS = [
    Work("JSON lines", "json", 4_000_000, 8, 1, None, NARROW),
    Work("Parquet", "parquet", 4_000_000, 8, 1, 3.0),
    Work("small files of 10 rows", "json", 1_000_000, 100_000, 10_000, 3.0),
]
LISTED = 1_000_000
NUMBERED = 10_000_000


def measure(asked: Asked) -> Iterator[Figure]:
    """Each kind of files in turn, then a listing."""
    for work in WORKS:
        if not asked.wants(work.name):
            continue
        with tempfile.TemporaryDirectory(prefix="lakefeed-bench-") as name:
            folder = Path(name)
            files = asked.of(work.files, 4)
            say(f"  writing {files:,} files, {work.name} ...")
            each = max(1, asked.of(work.rows) // files)
            _write(folder / "in", work, files, each)
            ours = _rate(_lakefeed(folder, work, files), folder / "ours", files * each)
            plain = _rate(_plain(folder, work, files), folder / "plain", files * each)
            say(f"  {work.name}: {ours:,.0f} rows/s, plain PySpark {plain:,.0f}")
            yield _figure(work, ours, plain)
            if work.schema == NARROW:
                yield _beside_kafka(ours, files * each)
    if asked.wants("listing"):
        yield from looks(asked.of(LISTED))
    if asked.wants("ledger"):
        yield from ledgers(asked.of(NUMBERED))


def _figure(work: Work, ours: float, plain: float) -> Figure:
    ratio = ours / plain
    if work.goal is None:
        return Figure(work.name, ours, "rows/s", ratio, "plain PySpark")
    goal = f"at least {work.goal:g} times plain PySpark"
    return Figure(work.name, ours, "rows/s", ratio, "plain PySpark", goal, ratio >= work.goal)


def _beside_kafka(ours: float, rows: int) -> Figure:
    """As many of the same events from Kafka."""
    with Broker(lasting=True) as broker:
        broker.create_topic(NARROW_TOPIC.name, PARTITIONS)
        say(f"  producing {rows:,} events ...")
        produce(broker.address, NARROW_TOPIC, rows)
        kafka = rate_of("lakefeed", WORKLOADS[0], broker.address, rows)
    ratio = ours / kafka
    return Figure("JSON lines, from Kafka", kafka, "rows/s", ratio, "it", "at least it", ratio >= 1)


def _write(folder: Path, work: Work, files: int, rows: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    for number in range(files):
        ids = np.arange(number * rows, (number + 1) * rows)
        if work.format == "parquet":
            columns = {"event_id": ids, "user_id": ids % 1000, "price": ids / 7, "kind": ["view"] * rows}
            pq.write_table(pa.table(columns), folder / f"{number:06d}.parquet")
            continue
        if work.schema == NARROW:
            (folder / f"{number:06d}.json").write_bytes(b"\n".join(map(NARROW_TOPIC.payload, ids.tolist())))
            continue
        lines = (
            f'{{"event_id":{one},"user_id":{one % 1000},"price":{one % 977}.25,"kind":"view"}}\n'
            for one in ids.tolist()
        )
        (folder / f"{number:06d}.json").write_text("".join(lines))


def _lakefeed(folder: Path, work: Work, files: int) -> list[str]:
    columns = {part.split()[0]: part.split()[1] for part in work.schema.split(", ")}
    options = {"type": "files", "path": str(folder / "in"), "format": work.format, "settle": "1ms"}
    file = folder / "bench.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "bench",
                "sources": {"drops": {**options, "max_files": _together(work, files)}},
                "tables": {"ours": {"path": str(folder / "ours"), "from": "drops", "schema": columns}},
                "flush": {"rows": 100_000_000, "bytes": "10GB"},
                "upkeep": "off",
            }
        )
    )
    return [sys.executable, "-m", "lakefeed", "run", str(file), "--once"]


def _plain(folder: Path, work: Work, files: int) -> list[str]:
    return [
        sys.executable,
        str(HERE / "files.py"),
        "plain",
        work.format,
        work.schema,
        str(_together(work, files)),
        str(folder),
    ]


def _together(work: Work, files: int) -> int:
    return max(1, work.together * files // work.files)


def _rate(command: list[str], table: Path, rows: int) -> float:
    """Rows per second between the first and the last batch, by when each version could be read."""
    log = Log(table)
    with running(command, table.parent / "said") as run:
        log.follow_to_rows(rows, LIMIT, run)
    counts = [
        sum(json.loads(add["stats"])["numRecords"] for add in log.adds(at)) for at in range(len(log.seen))
    ]
    data = [at for at, count in enumerate(counts) if count]
    assert len(data) > 1, "one batch alone has no rate"
    return sum(counts[data[0] + 1 :]) / (log.seen[data[-1]] - log.seen[data[0]])


def plain_pyspark(format: str, schema: str, together: int, folder: Path) -> None:
    """Spark's own file source into its Delta sink."""
    import plain

    spark = plain.session()
    reader = spark.readStream.format(format).schema(schema).option("maxFilesPerTrigger", together)
    writer = reader.load(str(folder / "in")).writeStream.format("delta").trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder / "checkpoint")).start(
        str(folder / "plain")
    ).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
    plain_pyspark(sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
else:
    from contender import Log, running
    from figure import Asked, Figure, say
    from looking import ledgers, looks
    from throughput import rate_of
    from workload import NARROW_TOPIC, PARTITIONS, WORKLOADS, produce

    from support.kafka import Broker
