"""The rows of a table in an object store, read by workers with Arrow.

Spark's Delta reaches such a store with Hadoop's client only, whose jars are 600 MB and have settings of their
own. Lakefeed's client is there already, with the options of the file. What it does not do is to leave out
columns and files that a query does not need.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefeed.handles.query.inputs import Input
from lakefeed.stores import open_store
from lakefeed.tables.data_files import read_file
from lakefeed.tables.file_rows import named_partition
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.log import Log
from lakefeed.tables.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Reading:
    """What a task needs to know. Picklable."""

    path: str
    storage: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    tasks: list[list[DataFile]]


def needs_own_reader(path: str, conf: Mapping[str, str]) -> bool:
    """Whether a table lies where Spark does not come by itself, and nobody has given it a way."""
    jars = f"{conf.get('spark.jars', '')} {conf.get('spark.jars.packages', '')}"
    return "://" in path and not path.startswith("file:") and "hadoop-aws" not in jars


def stored_rows(spark: SparkSession, one: Input, version: int, tasks: int) -> DataFrame:
    """One version of a table as a data frame."""
    from pyspark.sql.types import StructType

    table = LakeTable.open(one.name, one.path, one.storage, one.store, foreign=True)
    log = Log.open(one.store)
    assert table is not None and log is not None
    schema = table.at(version).schema()
    files = sorted(log.snapshot(version).files.values(), key=lambda file: -file.size)
    parts = [files[at::tasks] for at in range(min(tasks, len(files)))] or [[]]
    arrow = pa.schema(schema.to_arrow())
    packed = pickle.dumps(Reading(one.path, dict(one.storage), arrow, parts))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reading = pickle.loads(packed)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_files(reading, reading.tasks[number])

    made = StructType.fromJson(json.loads(schema.to_json()))
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, made)


def read_files(reading: Reading, files: list[DataFile]) -> Iterator[pa.RecordBatch]:
    """Every row of some files, with the columns of the table."""
    store = open_store(reading.path, dict(reading.storage))
    for file in files:
        partition = named_partition(file.partition, reading.schema)
        yield from read_file(store, replace(file, partition=partition), reading.schema)
