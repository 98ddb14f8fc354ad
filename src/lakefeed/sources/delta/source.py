"""Delta: a Delta table as a source, its content first and then the rows that each version adds."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, field_validator

from lakefeed.events import Events, OffsetRange
from lakefeed.pipeline.connectors import FormatField
from lakefeed.pipeline.options.client_options import Options
from lakefeed.pipeline.options.paths import Location
from lakefeed.sources import Source, SourceClient

PARTITION = "0"


Start = (
    Literal["earliest", "latest"]
    | dt.datetime
    | Annotated[dict[Literal["version"], NonNegativeInt], Field(min_length=1)]
)


class DeltaSource(Source):
    """A Delta table, written by Lakefeed or by others: its rows, and then the rows that are appended to it.

    An item is a row. Files are read in parallel, and parts of a large one too. It guarantees each row once,
    in the order of the versions, and it stops where a version deletes or changes rows, where the log or the
    files that come next are gone, and where another table lies at the path.
    """

    waits: ClassVar[bool] = False
    """Whether a table that is not there yet is waited for."""
    noun: ClassVar[str] = "source"
    """What messages call it."""
    type: Literal["delta"] = "delta"
    path: Location = Field(
        description="The path of the table: a local path, `file://` or `s3://`.", examples=["lake/orders"]
    )
    format: FormatField | None = Field(
        None, description="Not for this source: the table has columns already."
    )
    start: Start = Field(
        "earliest",
        description="Where a table without a position begins: `earliest` (all rows that are there, then what "
        "is appended), `latest`, a version, or a timestamp (in UTC unless it names a zone).",
        examples=["latest", {"version": 12}, "2026-11-01T00:00:00Z"],
    )
    ignore_deletes: bool = Field(
        False,
        description="Go on at a version that only deletes rows; the rows that were read stay. Without it, "
        "such a version stops the source.",
    )
    ignore_changes: bool = Field(
        False,
        description="Go on at a version that changes or deletes rows: files that it rewrites are read whole, "
        "so rows of them that did not change come again.",
    )
    max_files: int = Field(
        1000, gt=0, description="The maximum number of data files in one batch.", examples=[1000]
    )
    on_data_loss: Literal["fail", "skip"] = Field(
        "fail",
        description="What to do when the log no longer holds the versions that a table needs next: `fail` "
        "stops and names them, `skip` continues with the oldest version that is left.",
    )
    storage: Options = Field(
        default={}, description="Options of the store.", examples=[{"AWS_REGION": "eu-west-1"}]
    )

    @field_validator("format")
    @classmethod
    def _no_format(cls, value: object) -> None:
        if value is not None:
            raise ValueError("the table has columns already; remove this key")

    @field_validator("start")
    @classmethod
    def _times_are_utc(cls, value: Start) -> Start:
        if isinstance(value, dt.datetime) and value.tzinfo is None:
            return value.replace(tzinfo=dt.UTC)
        return value

    def client(self, pipeline: str, name: str) -> SourceClient:
        """Look at the log, on the driver."""
        from lakefeed.sources.delta.client import DeltaClient

        return DeltaClient(self, name)

    def known_streams(self) -> tuple[str, ...]:
        """There are none."""
        return ()

    def reads_table(self) -> str:
        """The path."""
        return self.path

    def partition_of(self, stream: str | None, number: int) -> str:
        """All of a table is one partition."""
        return PARTITION

    def place(self, offset: int) -> str:
        """`version 12, row 500`."""
        from lakefeed.sources.delta.place import Place

        return str(Place.of(offset))

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """Yield the rows of the files that ranges name. Runs on a worker."""
        from lakefeed.sources.delta.read import read

        return read(self, ranges)


class TableSource(DeltaSource):
    """A table of the file as a source of others: `from: bronze`. It is waited for until it is there."""

    waits: ClassVar[bool] = True
    noun: ClassVar[str] = "table"
