"""When a batch ends."""

from __future__ import annotations

from pydantic import Field

from lakefeed.pipeline.section import Section
from lakefeed.pipeline.units import Duration, Size


class Flush(Section):
    """A batch ends when the first of these is reached."""

    interval: Duration = Field(
        default=5.0, description="The longest time that an event waits for its batch to end.", examples=["5s"]
    )
    rows: int = Field(
        default=1_000_000, gt=0, description="The most events of one batch.", examples=[1_000_000]
    )
    bytes: Size = Field(
        default=128 * 1024**2,
        description="The payload bytes after which a batch ends, judged by the size that events had in the "
        "batch before. A batch whose events turn out to be more than twice as much is read again in parts.",
        examples=["128MB"],
    )
    idle: Duration | None = Field(
        default=None,
        description="End a batch early when nothing has arrived for so long. Left out: the others count.",
        examples=["1s"],
    )
