"""Where metrics are sent by the protocol of statsd."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from lakefeed.pipeline.section import Section
from lakefeed.text import shown


def _host_and_port(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"expected host:port, got {shown(text)}")
    return text


class Statsd(Section):
    """Metrics by UDP, under the names that kafka-delta-ingest gives them."""

    endpoint: Annotated[str, AfterValidator(_host_and_port)] = Field(
        description="The host and the port of the statsd server.", examples=["localhost:8125"]
    )
    prefix: str = Field(
        default="kafka_delta_ingest",
        min_length=1,
        description="What stands before each name, with a dot between.",
        examples=["clicks"],
    )
