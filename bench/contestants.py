"""Who is measured, each in a process of its own.

Call `python contestants.py NAME BROKERS TOPIC ROWS BATCH FOLDER`.

Prints one line of JSON: for each batch the rows that it had and the moment at which it was committed.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

from workload import PARTITIONS, SCHEMA

Done = list[tuple[float, int]]


def lakefeed(brokers: str, topic: str, rows: int, batch: int, folder: Path) -> Done:
    """The product, with nothing set but the size of a batch."""
    from lakefeed import Pipeline
    from lakefeed.engine.report import BatchDone, Quiet
    from lakefeed.engine.supervisor import run

    class Times(Quiet):
        def __init__(self) -> None:
            self.done: Done = []

        def batch_done(self, event: BatchDone) -> None:
            self.done.append((time.time(), event.read))

    pipeline = Pipeline.model_validate(
        {
            "name": "bench",
            "sources": {"clicks": {"type": "kafka", "brokers": brokers, "topics": [topic], "format": "json"}},
            "tables": {"events": {"path": str(folder / "lakefeed"), "from": "clicks", "schema": SCHEMA}},
            "flush": {"rows": batch, "bytes": "1GB"},
            "state": str(folder / "state"),
        }
    )
    watcher = Times()
    run(pipeline, once=True, watcher=watcher)
    return watcher.done


def plain_pyspark(brokers: str, topic: str, rows: int, batch: int, folder: Path) -> Done:
    """What a good engineer writes: Spark's Kafka source, from_json, the Delta sink, tuned."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from support.jars import Artifact, fetch
    from support.spark_reader import delta_jars

    kafka = [
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", alone=True),
        Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", alone=True),
        Artifact("org.apache.kafka", "kafka-clients", "3.9.2", alone=True),
        Artifact("org.apache.commons", "commons-pool2", "2.13.1", alone=True),
    ]
    jars = [*delta_jars(), *(jar for artifact in kafka for jar in fetch(artifact).glob("*.jar"))]
    manager = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    settings = {
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.streaming.checkpointFileManagerClass": manager,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    columns = ", ".join(f"{name} {kind.replace(' not null', '')}" for name, kind in SCHEMA.items())
    events = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(batch))
        .load()
        .select(F.from_json(F.col("value").cast("string"), columns).alias("r"))
        .select("r.*")
    )
    writer = events.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "plain"))
    query.awaitTermination()
    done: Done = []
    for progress in query.recentProgress:
        if progress["numInputRows"]:
            began = time.mktime(time.strptime(progress["timestamp"][:19], "%Y-%m-%dT%H:%M:%S"))
            fraction = float(progress["timestamp"][19:].rstrip("Z") or 0)
            ended = began + fraction + progress["durationMs"]["triggerExecution"] / 1000
            done.append((ended, progress["numInputRows"]))
    spark.stop()
    return done


def bare_limit(brokers: str, topic: str, rows: int, batch: int, folder: Path) -> Done:
    """As many processes as cores that fetch, decode and write: no engine, no commit."""
    cores = multiprocessing.cpu_count()
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        share = rows // PARTITIONS
        spans = [(f"{topic}-{number}", 0, share) for number in range(PARTITIONS)]
        arguments = [(brokers, topic, spans[core::cores], batch, folder) for core in range(cores)]
        return sorted(done for one in pool.starmap(_bare, arguments) for done in one)


def _bare(brokers: str, topic: str, spans: list[tuple[str, int, int]], batch: int, folder: Path) -> Done:
    from lakefeed.files.parquet import FileTarget, TableWriter
    from lakefeed.formats.json import JsonFormat
    from lakefeed.pipeline.types import declared_schema, stored
    from lakefeed.sources import OffsetRange
    from lakefeed.sources.kafka import KafkaSource
    from lakefeed.stores import open_store

    schema = declared_schema(SCHEMA)
    source = KafkaSource(brokers=brokers, topics=(topic,), format=JsonFormat())
    decoder = JsonFormat().decoder(schema)
    store = open_store(str(folder / "bare"), {})
    done: Done = []
    share = batch // PARTITIONS
    for name, start, end in spans:
        for at in range(start, end, share):
            writer = TableWriter(store, FileTarget(stored(schema)))
            for events in source.read([OffsetRange(name, at, min(at + share, end))]):
                writer.write(decoder.decode(events.payloads).rows)
            writer.close()
            done.append((time.time(), min(share, end - at)))
    return done


CONTESTANTS = {"lakefeed": lakefeed, "plain_pyspark": plain_pyspark, "bare_limit": bare_limit}

if __name__ == "__main__":
    name, brokers, topic, rows, batch, folder = sys.argv[1:]
    result: Any = CONTESTANTS[name](brokers, topic, int(rows), int(batch), Path(folder))
    print(json.dumps(result))
