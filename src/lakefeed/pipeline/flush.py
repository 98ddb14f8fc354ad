"""When a batch ends."""

from __future__ import annotations

from pydantic import Field

from lakefeed.pipeline.section import Section
from lakefeed.units import Duration, Size

_ROWS_A_CORE, _BYTES_A_CORE = 250_000, 32 * 1024**2
"""What a batch may hold for each core, where the file does not limit it."""


class Flush(Section):
    """A batch ends when the first of these is reached."""

    interval: Duration = Field(
        default=5.0, description="The longest time that an event waits until its batch ends.", examples=["5s"]
    )
    rows: int = Field(
        default=1_000_000,
        gt=0,
        description="The maximum number of events in one batch. Left out: 1,000,000, or 250,000 for each "
        "core where Spark has more than four.",
        examples=[1_000_000],
    )
    bytes: Size = Field(
        default=128 * 1024**2,
        description="The payload bytes after which a batch ends, estimated from the size of the events in "
        "the batch before. If a task reads more than twice as many, its batch is read again in parts. Left "
        "out: 128 MB, or 32 MB for each core where Spark has more than four.",
        examples=["128MB"],
    )
    idle: Duration | None = Field(
        default=None,
        description="End a batch early when no event has arrived for this long. Left out: only the other "
        "limits count.",
        examples=["1s"],
    )

    def most_rows(self, cores: int) -> int:
        """The most events of a batch that so many cores read."""
        return self.rows if "rows" in self.model_fields_set else max(self.rows, _ROWS_A_CORE * cores)

    def most_bytes(self, cores: int) -> int:
        """The most bytes of a batch that so many cores read."""
        return self.bytes if "bytes" in self.model_fields_set else max(self.bytes, _BYTES_A_CORE * cores)
