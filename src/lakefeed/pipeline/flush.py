"""When a batch ends."""

from __future__ import annotations

from pydantic import Field

from lakefeed.pipeline.section import Section
from lakefeed.units import Duration, Size


class Flush(Section):
    """A batch ends when the first of these is reached."""

    interval: Duration = Field(
        default=5.0, description="The longest time that an event waits until its batch ends.", examples=["5s"]
    )
    rows: int = Field(
        default=1_000_000,
        gt=0,
        description="The maximum number of events in one batch.",
        examples=[1_000_000],
    )
    bytes: Size = Field(
        default=128 * 1024**2,
        description="The payload bytes after which a batch ends, estimated from the size of the events in "
        "the batch before. A batch with more than twice as many bytes is read again in parts.",
        examples=["128MB"],
    )
    idle: Duration | None = Field(
        default=None,
        description="End a batch early when no event has arrived for this long. Left out: only the other "
        "limits count.",
        examples=["1s"],
    )
