"""Delta: a Delta table as a source, its content first and then the rows that each version adds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, field_validator, model_validator

from lakefeed.columns.change_columns import CHANGE_FEED, ChangeColumns
from lakefeed.events import Events, OffsetRange
from lakefeed.pipeline.connectors import FormatField
from lakefeed.pipeline.options.client_options import Options
from lakefeed.pipeline.options.paths import Location
from lakefeed.pipeline.section import UtcTime
from lakefeed.sources import Source, SourceClient

TABLE_MARK = "table"
"""The mark that identifies the table that is read."""

Start = (
    Literal["earliest", "latest"]
    | UtcTime
    | Annotated[dict[Literal["version"], NonNegativeInt], Field(min_length=1)]
)


class DeltaSource(Source):
    """A Delta table, written by Lakefeed or by others: its rows, and then the rows that are appended to it.

    An item is a row, or with `change_feed` a change of one. Files are read in parallel, and parts of a large
    one too. It guarantees each row or change once, in the order of the versions, and it stops where a version
    deletes or changes rows and no feed is read, where the log or the files that come next are gone, and where
    another table lies at the path.
    """

    event_marks: ClassVar[tuple[str, ...] | None] = ("table",)
    waits: ClassVar[bool] = False
    """Whether a table that is not there yet is waited for."""
    noun: ClassVar[str] = "source"
    """What messages call it."""
    type: Literal["delta"] = "delta"
    path: Location = Field(
        description="The path of the table: a local path or the URL of an object store.",
        examples=["lake/orders"],
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
    change_feed: bool = Field(
        False,
        description="Read the table's change data feed: inserts, updates and deletes, each row with "
        "`_change_type`, `_commit_version` and `_commit_timestamp`. The table needs "
        "`delta.enableChangeDataFeed=true`.",
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
    event_time_order: str | None = Field(
        None,
        min_length=1,
        description="With `start: earliest`: a column with a time or a number; the files that are there at "
        "first are read in the order of its smallest value in each, and not as they were written.",
        examples=["event_time"],
    )
    exclude: str | None = Field(
        None,
        description="A regular expression: files of the table whose paths it matches somewhere are left out.",
        examples=["/region=test/"],
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

    @field_validator("exclude")
    @classmethod
    def _is_a_pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> Self:
        if self.event_time_order and self.start != "earliest":
            raise ValueError("event_time_order has an effect only with `start: earliest`; remove one of them")
        for option in ("ignore_deletes", "ignore_changes"):
            if self.change_feed and getattr(self, option):
                raise ValueError(
                    f"{option} has no effect with `change_feed`, which tells of changes; remove it"
                )
        return self

    def client(self, pipeline: str, name: str) -> SourceClient:
        """Look at the log, on the driver."""
        from lakefeed.sources.delta.client import DeltaClient

        return DeltaClient(self, name)

    @property
    def change_columns(self) -> ChangeColumns | None:
        """With `change_feed`, a row is a change."""
        return CHANGE_FEED if self.change_feed else None

    @property
    def is_change_feed(self) -> bool:
        """Whether it reads one."""
        return self.change_feed

    def called(self, name: str) -> str:
        """What messages call it."""
        return f"{self.noun} {name}"

    def reads_table(self) -> str:
        """The path."""
        return self.path

    def identity_of(self, partition: str) -> str:
        """The mark of the table that is read."""
        return TABLE_MARK

    def describe_offset(self, offset: int) -> str:
        """`version 12, row 500`."""
        from lakefeed.sources.delta.offset import DeltaOffset

        return str(DeltaOffset.of(offset))

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """Yield the rows of the files that ranges name. Runs on a worker."""
        from lakefeed.sources.delta.read import read

        return read(self, ranges)


class TableSource(DeltaSource):
    """A table of the file as a source of others: `from: bronze`. It is waited for until it is there."""

    waits: ClassVar[bool] = True
    noun: ClassVar[str] = "table"
