"""Who is measured, each in a process of its own.

Call `python contestants.py NAME WORKLOAD BROKERS ROWS BATCH FOLDER`.

Prints one line of JSON: for each batch the moment at which it was committed and the events that it had.
"""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import sys
import time
from pathlib import Path

from workload import PARTITIONS, WORKLOADS, Workload

Done = list[tuple[float, int]]


def lakefeed(work: Workload, brokers: str, rows: int, batch: int, folder: Path) -> Done:
    """The product, with nothing set but the size of a batch."""
    from lakefeed import Pipeline
    from lakefeed.engine.run_events import BatchDone, RunEvent
    from lakefeed.run import run

    class Times:
        def __init__(self) -> None:
            self.done: Done = []

        def __call__(self, event: RunEvent) -> None:
            if isinstance(event, BatchDone):
                self.done.append((time.time(), event.read))

    watcher = Times()
    pipeline = Pipeline.model_validate(work.pipeline(brokers, batch, folder))
    run(pipeline, once=True, watch=watcher)
    return watcher.done


def plain_pyspark(work: Workload, brokers: str, rows: int, batch: int, folder: Path) -> Done:
    """What a good engineer writes: Spark's Kafka source, from_json or from_avro, the Delta sink, tuned."""
    import plain
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    spark = plain.session()
    columns = ", ".join(f"{name} {kind.replace(' not null', '')}" for name, kind in work.columns.items())
    value = F.col("value")
    decoded = (
        from_avro(value, work.avro_schema())
        if work.format == "avro"
        else F.from_json(value.cast("string"), columns)
    )
    events = plain.events(spark, brokers, work.topic.name, maxOffsetsPerTrigger=str(batch))
    shaped = events.select(decoded.alias("r")).select("r.*")
    if work.where:
        shaped = shaped.where(work.where)
    if work.select:
        shaped = shaped.selectExpr(*work.select)
    if work.partitioned:
        shaped = shaped.withColumn("day", F.to_date("event_time"))
    writer = shaped.writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.partitionBy(*work.partitioned).trigger(availableNow=True).start(str(folder / "plain"))
    query.awaitTermination()
    done = [
        (_ended(progress), progress["numInputRows"])
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    spark.stop()
    return done


def _ended(progress: dict[str, object]) -> float:
    began = dt.datetime.fromisoformat(str(progress["timestamp"])).timestamp()
    durations = progress["durationMs"]
    assert isinstance(durations, dict)
    return began + float(durations["triggerExecution"]) / 1000


def bare_limit(work: Workload, brokers: str, rows: int, batch: int, folder: Path) -> Done:
    """As many processes as cores that fetch, decode and write: no engine, no commit."""
    cores = multiprocessing.cpu_count()
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        share = rows // PARTITIONS
        spans = [(f"{work.topic.name}-{number}", 0, share) for number in range(PARTITIONS)]
        arguments = [(work.name, brokers, spans[core::cores], batch, folder) for core in range(cores)]
        return sorted(done for one in pool.starmap(_bare, arguments) for done in one)


def _bare(name: str, brokers: str, spans: list[tuple[str, int, int]], batch: int, folder: Path) -> Done:
    from lakefeed import Pipeline
    from lakefeed.columns.column_types import declared_schema, stored
    from lakefeed.engine.batch.plan import format_of
    from lakefeed.events import OffsetRange
    from lakefeed.files.parquet import FileTarget, TableWriter
    from lakefeed.sources import source_of
    from lakefeed.stores import open_store

    work = chosen(name)
    schema = declared_schema(dict(work.columns))
    source = source_of(Pipeline.model_validate(work.pipeline(brokers, batch, folder)), "clicks")
    decoder = format_of(source).decoder(schema)
    store = open_store(str(folder / "bare"), {})
    done: Done = []
    share = batch // PARTITIONS
    for partition, start, end in spans:
        for at in range(start, end, share):
            writer = TableWriter(store, FileTarget(stored(schema)))
            for events in source.read([OffsetRange(partition, at, min(at + share, end))]):
                writer.write(decoder.decode(events.payloads).rows)
            writer.close()
            done.append((time.time(), min(share, end - at)))
    return done


def chosen(name: str) -> Workload:
    return next(work for work in WORKLOADS if work.name == name)


CONTESTANTS = {"lakefeed": lakefeed, "plain PySpark": plain_pyspark, "the bare limit": bare_limit}

if __name__ == "__main__":
    who, name, brokers, rows, batch, folder = sys.argv[1:]
    result = CONTESTANTS[who](chosen(name), brokers, int(rows), int(batch), Path(folder))
    print(json.dumps(result))
