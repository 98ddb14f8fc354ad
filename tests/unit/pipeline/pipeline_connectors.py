"""Small connectors, so that the tests of the pipeline file depend on no real one."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from lakefeed.pipeline.connectors import Connector, FormatField
from lakefeed.pipeline.flush import Flush
from lakefeed.pipeline.options.client_options import Options


class LinesFormat(Connector):
    room: ClassVar[str] = "format"
    type: Literal["lines"] = "lines"
    separator: str = Field(",", description="Between the values.")


class FramedFormat(Connector):
    room: ClassVar[str] = "format"
    type: Literal["framed"] = "framed"
    header: int = Field(description="How many bytes to skip.")


class QueueSource(Connector):
    room: ClassVar[str] = "source"
    type: Literal["queue"] = "queue"
    brokers: str = Field(description="Where to connect.")
    topics: tuple[str, ...] = Field((), description="What to read.")
    start: Literal["earliest", "latest"] | dict[str, int] = Field("earliest", description="Where to begin.")
    format: FormatField = Field("lines", validate_default=True, description="How to decode.")
    options: Options = Field({}, description="Passed to the client.")
    flush: Flush | None = Field(None, description="When a batch ends.")

    def known_streams(self) -> tuple[str, ...] | None:
        return self.topics or None
