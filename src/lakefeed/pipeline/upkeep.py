"""Upkeep: how a table is kept fit to be read while it is written."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from lakefeed.pipeline.names import ColumnName
from lakefeed.pipeline.section import Section
from lakefeed.pipeline.units import Duration, Size, format_duration

DAY = 86400.0
SHORTEST_RETENTION = 7 * DAY
"""Seconds for which vacuum keeps files that were removed, unless a shorter time is asked for twice."""


def _off(value: Any) -> Any:
    return "off" if value is False else value


Off = Literal["off"]


class Compact(Section):
    """Small files become large ones, partition by partition, oldest first."""

    every: Duration = Field(default=600.0, description="How often to look for small files.", examples=["10m"])
    target_file_size: Size | None = Field(
        default=None,
        description="The size that files are made to have. Left out: the table's `target_file_size`.",
        examples=["128MB"],
    )
    min_files: int = Field(
        default=8,
        ge=2,
        description="So many small files of a partition are worth a rewrite. A partition that gets no more "
        "files is rewritten from two on.",
    )
    where: str | None = Field(
        default=None,
        min_length=1,
        description="Only these partitions: a SQL condition on the partition columns.",
        examples=["country in ('DE', 'FR')"],
    )


class Cluster(Section):
    """Rows that are near each other in `cluster_by` come to lie in the same files."""

    every: Duration = Field(
        default=DAY, description="How often partitions with new files are put in order.", examples=["1d"]
    )


class Vacuum(Section):
    """Files that no version within the retention needs are deleted."""

    every: Duration = Field(default=DAY, description="How often to look for such files.", examples=["1d"])
    retain: Duration | None = Field(
        default=None,
        description="How long removed files are kept for readers and time travel. Left out: as long as the "
        "table's `delta.deletedFileRetentionDuration` says, and at least 7 days.",
        examples=["7d"],
    )
    allow_short_retention: bool = Field(
        default=False, description="Let `retain` be shorter than 7 days or than the table's own retention."
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
    """Rows older than an age are deleted."""

    column: ColumnName = Field(
        description="The timestamp or date that tells a row's age.", examples=["event_time"]
    )
    age: Duration = Field(description="How old a row may become.", examples=["90d"])
    every: Duration = Field(default=DAY, description="How often old rows are deleted.", examples=["1d"])


class Log(Section):
    """How long the table's log grows; kept as properties of the table, which every writer follows."""

    checkpoint_every: int | None = Field(
        default=None,
        gt=0,
        description="Commits between two checkpoints, as `delta.checkpointInterval`. "
        "Left out: what the table says, else 100.",
        examples=[100],
    )
    retain: Duration | None = Field(
        default=None,
        description="How long the entries before a checkpoint are kept, as `delta.logRetentionDuration`. "
        "Left out: what the table says, else 30 days.",
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
    """What is done for a table while it is written, beside the stream."""

    engine: Literal["delta-rs", "spark"] = Field(
        default="delta-rs",
        description="What rewrites files: delta-rs on the driver, or the Spark of the pipeline for tables "
        "that outgrow one machine.",
    )
    compact: Annotated[Compact | Off, BeforeValidator(_off)] = Field(
        default=Compact(), description="Make large files of small ones."
    )
    cluster: Annotated[Cluster | Off, BeforeValidator(_off)] = Field(
        default=Cluster(), description="Order rows by the table's `cluster_by`, if it has one."
    )
    vacuum: Annotated[Vacuum | Off, BeforeValidator(_off)] = Field(
        default=Vacuum(), description="Delete files that are needed no more."
    )
    delete_after: Annotated[DeleteAfter | Off, BeforeValidator(_off)] = Field(
        default="off", description="Delete rows that are too old."
    )
    log: Log = Field(default=Log(), description="Checkpoints and the length of the log.")
    max_share: float = Field(
        default=0.2, gt=0, le=1, description="The largest share of time that upkeep may take.", examples=[0.2]
    )


UpkeepField = Annotated[Upkeep | Off, BeforeValidator(_off)]

S = TypeVar("S", bound=Section)


def laid_over(ground: S, own: S) -> S:
    """The section `ground` with every key that `own` gives in its place, at any depth."""
    given: dict[str, Any] = {}
    for name in own.model_fields_set:
        value, below = getattr(own, name), getattr(ground, name)
        nested = isinstance(value, Section) and type(value) is type(below)
        given[name] = laid_over(below, value) if nested else value
    return ground.model_copy(update=given)


def resolved(pipeline: Upkeep | Off, own: Upkeep | Off | None) -> Upkeep | None:
    """The upkeep of one table: the pipeline's, with the table's own keys in place; None where it is off."""
    if own is None:
        return None if pipeline == "off" else pipeline
    if own == "off":
        return None
    return own if pipeline == "off" else laid_over(pipeline, own)
