"""Upkeep: how a table is kept fit to be read while it is written."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from lakefeed.columns.names import ColumnName
from lakefeed.pipeline.section import Section
from lakefeed.units import Duration, Size, format_duration

DAY = 86400.0
SHORTEST_RETENTION = 7 * DAY
"""Seconds for which vacuum keeps files that were removed, unless a shorter time is asked for twice."""


def _off(value: Any) -> Any:
    return "off" if value is False else value


Off = Literal["off"]


class Compact(Section):
    """Compacts small files into large ones, partition by partition, the oldest first."""

    every: Duration = Field(default=600.0, description="How often to look for small files.", examples=["10m"])
    target_file_size: Size | None = Field(
        default=None,
        description="The size of the new files. Left out: the table's `target_file_size`.",
        examples=["128MB"],
    )
    min_files: int = Field(
        default=8,
        ge=2,
        description="A partition is compacted when it has at least this many small files. If it gets no "
        "more files, two are enough.",
    )
    max_deleted: float = Field(
        default=0.05,
        gt=0,
        le=1,
        description="A file is written again without its deleted rows when deletion vectors delete more than "
        "this share of them, as with `updates: merge_on_read`. As soon as they delete more than half of this "
        "share of the whole table, the files with most deleted rows are written again, until it is less.",
        examples=[0.2],
    )
    where: str | None = Field(
        default=None,
        min_length=1,
        description="Only these partitions: a SQL condition on the partition columns.",
        examples=["country in ('DE', 'FR')"],
    )


class Cluster(Section):
    """Sorts rows, so that rows with similar values in `cluster_by` are in the same files."""

    every: Duration = Field(
        default=DAY, description="How often partitions with new files are sorted.", examples=["1d"]
    )


class Vacuum(Section):
    """Deletes files that no version within the retention needs."""

    every: Duration = Field(default=DAY, description="How often to look for such files.", examples=["1d"])
    retain: Duration | None = Field(
        default=None,
        description="How long removed files are kept for readers and time travel. Left out: as long as the "
        "table's `delta.deletedFileRetentionDuration` says, and at least 7 days.",
        examples=["7d"],
    )
    allow_short_retention: bool = Field(
        default=False,
        description="Allow a `retain` that is shorter than 7 days or than the table's own retention.",
    )

    @model_validator(mode="after")
    def _refuse_short(self) -> Vacuum:
        if self.retain is not None and self.retain < SHORTEST_RETENTION and not self.allow_short_retention:
            raise ValueError(
                f"retain: {format_duration(self.retain)} is shorter than 7d, and readers of older versions "
                "would fail; set `allow_short_retention: true` if that is meant"
            )
        return self


class DeleteAfter(Section):
    """Deletes rows that are older than an age."""

    column: ColumnName = Field(
        description="The timestamp or date column for the age of a row.", examples=["event_time"]
    )
    age: Duration = Field(description="Rows older than this are deleted.", examples=["90d"])
    every: Duration = Field(default=DAY, description="How often old rows are deleted.", examples=["1d"])


class Log(Section):
    """The length of the table's log. Stored as properties of the table, which every writer follows."""

    checkpoint_every: int | None = Field(
        default=None,
        gt=0,
        description="Commits between two checkpoints, as `delta.checkpointInterval`. Left out: the table's "
        "property, or 100.",
        examples=[100],
    )
    retain: Duration | None = Field(
        default=None,
        description="How long the entries before a checkpoint are kept, as `delta.logRetentionDuration`. "
        "Left out: the table's property, or 30 days.",
        examples=["30d"],
    )

    @property
    def properties(self) -> dict[str, str]:
        """What is given, as table properties."""
        found = {}
        if self.checkpoint_every is not None:
            found["delta.checkpointInterval"] = str(self.checkpoint_every)
        if self.retain is not None:
            # Delta counts whole units; a retention is never shortened.
            found["delta.logRetentionDuration"] = f"interval {-int(-self.retain // 1)} seconds"
        return found


class Upkeep(Section):
    """Maintenance of a table while the pipeline runs."""

    engine: Literal["delta-rs", "spark"] = Field(
        default="delta-rs",
        description="What rewrites files: delta-rs on the driver, or the Spark of the pipeline for tables "
        "that are too large for one machine.",
    )
    compact: Annotated[Compact | Off, BeforeValidator(_off)] = Field(
        default=Compact(), description="Compact small files into large ones."
    )
    cluster: Annotated[Cluster | Off, BeforeValidator(_off)] = Field(
        default=Cluster(), description="Sort rows by the table's `cluster_by`, if it has one."
    )
    vacuum: Annotated[Vacuum | Off, BeforeValidator(_off)] = Field(
        default=Vacuum(), description="Delete files that no version needs any more."
    )
    delete_after: Annotated[DeleteAfter | Off, BeforeValidator(_off)] = Field(
        default="off", description="Delete rows that are too old."
    )
    log: Log = Field(default=Log(), description="Checkpoints and the length of the log.")
    once: bool = Field(
        default=False,
        description="Whether `lakefeed run --once` does, at its end, what is due. Without a record of an "
        "operation in the `state` folder, it is due.",
    )
    max_share: float = Field(
        default=0.2,
        gt=0,
        le=1,
        description="The maximum share of the time that upkeep may work on a table.",
        examples=[0.2],
    )


UpkeepField = Annotated[Upkeep | Off, BeforeValidator(_off)]

S = TypeVar("S", bound=Section)


def merged(general: S, own: S) -> S:
    """The section `general` with every key that `own` gives replaced, at any depth."""
    given: dict[str, Any] = {}
    for name in own.model_fields_set:
        value, other = getattr(own, name), getattr(general, name)
        nested = isinstance(value, Section) and type(value) is type(other)
        given[name] = merged(other, value) if nested else value
    return general.model_copy(update=given)


def resolved(pipeline: Upkeep | Off, own: Upkeep | Off | None) -> Upkeep | None:
    """The upkeep of one table: the pipeline's, with the table's own keys instead; None where it is off."""
    if own is None:
        return None if pipeline == "off" else pipeline
    if own == "off":
        return None
    return own if pipeline == "off" else merged(pipeline, own)
