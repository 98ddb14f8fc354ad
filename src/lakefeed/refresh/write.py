"""The rows of a query become files, on the workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

import orjson
import pyarrow as pa

from lakefeed.columns.mapping import unmapped
from lakefeed.engine.faultpoints import passing
from lakefeed.engine.spark.worker import begin_task
from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, write_files
from lakefeed.pipeline.options.partition_by import PartitionField
from lakefeed.rows.partition import add_partition_columns
from lakefeed.stores import open_store
from lakefeed.tables.file_rows import conformed

MANIFEST = "manifest string"
"""The columns of what a task returns."""


@dataclass(frozen=True)
class WritePlan:
    """What a task needs to know of the table. Picklable."""

    path: str
    storage: Mapping[str, str] = field(repr=False)
    target: FileTarget
    partition_by: tuple[PartitionField, ...]


def writing(plan: WritePlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: takes rows, returns the names of the files that hold them."""
    packed = pickle.dumps(plan)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        written = write_rows(pickle.loads(packed), batches)
        yield pa.RecordBatch.from_arrays([pa.array([manifest_of(written)])], names=["manifest"])

    return write


def write_rows(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
    """Write all rows into files that nobody knows yet."""

    def pieces() -> Iterator[pa.Table]:
        for batch in batches:
            rows = add_partition_columns(batch, plan.partition_by)
            yield pa.Table.from_batches([fitted(rows, plan.target.schema)])
        passing("task_written")

    return write_files(open_store(plan.path, dict(plan.storage)), plan.target, pieces())


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of the table: narrower types are widened, missing columns are null."""
    made = conformed(rows, unmapped(schema))
    for each, column in zip(schema, made.columns, strict=True):
        if not each.nullable and column.null_count:
            raise ValueError(f"column {each.name} of the table is not null, and the query has nulls for it")
    return made


def manifest_of(files: Iterable[WrittenFile]) -> str:
    """The files as text, for the way through Spark."""
    return orjson.dumps([asdict(file) for file in files]).decode()


def files_of(manifests: Iterable[str]) -> list[WrittenFile]:
    """The files of all tasks."""
    return [WrittenFile(**file) for text in manifests for file in orjson.loads(text)]
