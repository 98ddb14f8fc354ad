"""Spark: whatever Structured Streaming can read, by the name of its format and its options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from lakefeed.columns.change_columns import ChangeColumns
from lakefeed.events import Events, OffsetRange
from lakefeed.pipeline.connectors import Connector
from lakefeed.pipeline.options.client_options import Options
from lakefeed.pipeline.options.paths import LocalPath
from lakefeed.sources import Source, SourceClient
from lakefeed.units import Duration, Size


class SparkSource(Source):
    """Rows of a streaming source that Spark has, or that you add to it.

    An item is a row. Spark reads in parallel and keeps each of its batches in files, from which tables are
    fed in parallel as well. It guarantees each row of each batch once, in the order of the batches, as long
    as Spark's checkpoint is kept: a table that knows another one is not fed.
    """

    event_marks: ClassVar[tuple[str, ...] | None] = ()
    type: Literal["spark"] = "spark"
    format: str = Field(  # type: ignore[assignment]
        min_length=1,
        description="The format of Spark's `readStream`, such as `rate`, `socket` or `json`.",
        examples=["rate"],
    )
    options: Options = Field(
        default={},
        description="Options of that format; a folder of files is the option `path`.",
        examples=[{"rowsPerSecond": "10"}],
    )
    columns: str | None = Field(
        None,
        min_length=1,
        description="The columns, as Spark writes them, for formats that do not know them: files of JSON or "
        "CSV.",
        examples=["id LONG, name STRING"],
    )
    python: LocalPath | None = Field(
        None,
        description="A Python file whose data sources (subclasses of `pyspark.sql.datasource.DataSource`) "
        "are registered first.",
        examples=["feeds.py"],
    )
    checkpoint: LocalPath = Field(
        ".lakefeed/spark",
        validate_default=True,
        description="Where Spark's checkpoint and the batches that it has read are kept. It must survive a "
        "restart: without it, nobody knows which rows have been read.",
    )
    trigger: Duration = Field(
        1.0, description="How long Spark waits between two looks for new rows.", examples=["1s"]
    )
    buffer: Size = Field(
        1024**3,
        description="Spark waits while the batches that no table has taken yet are larger than this.",
        examples=["1GB"],
    )
    retain: Duration = Field(
        3600.0,
        description="How long batches are kept that every table has taken, so that `rewind` can read them "
        "again.",
        examples=["1h"],
    )

    @property
    def payload_format(self) -> Connector | None:
        """Rows have columns already."""
        return None

    @property
    def change_columns(self) -> ChangeColumns | None:
        """Spark has rows."""
        return None

    def folder(self, pipeline: str, name: str) -> Path:
        """Where all that is kept of a source lies."""
        return Path(self.checkpoint) / pipeline / re.sub(r"[^\w.-]", "_", name)

    def client(self, pipeline: str, name: str) -> SourceClient:
        """Look at the batches that Spark has read; in a run, let it read."""
        from lakefeed.sources.spark.client import SparkClient

        return SparkClient(self, pipeline, name)

    def describe_offset(self, offset: int) -> str:
        """`batch 12, row 500`."""
        from lakefeed.sources.spark.spool import words

        return words(offset)

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """Yield the rows of the files that ranges name. Runs on a worker."""
        from lakefeed.sources.spark.read import read

        return read(self, ranges)
