"""Http: events that are POSTed, durable in a journal before they are answered for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from lakefeed.events import Events, OffsetRange
from lakefeed.pipeline.connectors import FormatField
from lakefeed.pipeline.http import is_loopback, split_address
from lakefeed.pipeline.options.client_options import Options
from lakefeed.pipeline.options.paths import Location
from lakefeed.pipeline.section import NAMES, Section, as_list
from lakefeed.sources import Source, SourceClient
from lakefeed.sources.http.access import Hmac, Tls, Token
from lakefeed.units import Duration, Size

StreamName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}$")]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9\-_]{1,100}$", to_lower=True)]
_NEVER_KEPT = re.compile(r"authorization|cookie|signature|token|secret|password|api-?key", re.I)


def _address(text: str) -> str:
    split_address(text)
    return text.strip()


class Idempotency(Section):
    """For how long the keys of requests are remembered."""

    window: Duration = Field(
        86_400.0,
        description="A key is forgotten after this time.",
        examples=["1d"],
    )
    keys: int = Field(
        100_000, gt=0, le=10_000_000, description="How many keys are remembered at most.", examples=[100_000]
    )


class HttpSource(Source):
    """Events POSTed to `/<stream>`: a JSON object, an array of them, or NDJSON.

    An item is an event of a request. One receiver on the driver writes them into a journal, and ranges of it
    are read in parallel. It guarantees that an event is on the disk before its request is answered with 2xx,
    and each such event once and in the order of its stream; with `Idempotency-Key`, once for all attempts.
    """

    type: Literal["http"] = "http"
    listen: Annotated[str, AfterValidator(_address)] = Field(
        "127.0.0.1:8090",
        description="The address to listen on. One that other machines can reach needs `token`, `hmac` or "
        "`tls.client_ca`. With port 0 the system chooses a free port, and the log names it.",
        examples=["127.0.0.1:8090", "0.0.0.0:8090"],
    )
    streams: Annotated[tuple[StreamName, ...], BeforeValidator(as_list), NAMES] = Field(
        min_length=1,
        description="What is accepted: `POST /orders` for the stream `orders`. Everything else is 404.",
        examples=[["orders", "clicks"]],
    )
    format: FormatField = Field(
        "json",
        validate_default=True,
        description="How a payload becomes columns. With `json`, a body is one event, an array of events or "
        "a line for each; with any other format, a body is one event as it is.",
    )
    token: Token | None = Field(
        default=None,
        description="A request must have `Authorization: Bearer` with this token, or with one of several by "
        "the name of the sender; the name is then in `_key`.",
        examples=["${INGEST_TOKEN}", {"shop": "${SHOP_TOKEN}", "app": "${APP_TOKEN}"}],
    )
    hmac: Hmac | None = Field(
        default=None,
        description="A request must be signed.",
        examples=[{"preset": "github", "secret": "${WEBHOOK_SECRET}"}],
    )
    tls: Tls | None = Field(default=None, description="Listen with TLS.")
    allow_origins: tuple[str, ...] = Field(
        (),
        description="Web pages of these origins may send events from a browser (CORS); `*` is every origin. "
        "Left out: none, and a request that says that it comes from a web page is refused.",
        examples=[["https://shop.example"]],
    )
    headers: tuple[HeaderName, ...] = Field(
        (),
        description="Headers of a request that are kept in `_headers`. Those that hold secrets never are.",
        examples=[["x-request-id"]],
    )
    on_bad: Literal["dead_letter", "reject"] = Field(
        "dead_letter",
        description="What to do with a record of a request that cannot become a row: `dead_letter` takes it "
        "and names it in the answer, `reject` refuses the whole request with 400 and takes nothing; only for "
        "plain JSON.",
    )
    journal: Location = Field(
        ".lakefeed/journal",
        validate_default=True,
        description="Where events are kept until all tables have them. Must survive a restart of the "
        "machine.",
        examples=["/var/lib/lakefeed/journal", "s3://lake/journal"],
    )
    quota: Size = Field(
        10 * 2**30,
        description="The maximum size of the journal; beyond it, requests get 503 until tables have caught "
        "up.",
        examples=["10GB"],
    )
    max_body: Size = Field(
        10 * 2**20,
        le=2**30,
        description="The maximum size of a body, before and after it is decompressed.",
        examples=["10MB"],
    )
    body_timeout: Duration = Field(30.0, description="How long a body may take to arrive.", examples=["30s"])
    wait_timeout: Duration = Field(
        30.0,
        description="How long `?wait=table` waits before it answers 504.",
        examples=["30s"],
    )
    max_rate: int | None = Field(
        default=None,
        gt=0,
        description="Events per second of one token, over some seconds; beyond it, requests get 429. Left "
        "out: no limit.",
        examples=[5000],
    )
    max_in_flight: Size = Field(
        64 * 2**20,
        description="The bytes of all requests that are being received; beyond it, requests get 503.",
        examples=["64MB"],
    )
    idempotency: Idempotency = Field(
        default_factory=lambda: Idempotency.model_validate({}),
        description="For how long `Idempotency-Key` is remembered.",
    )
    on_data_loss: Literal["fail", "skip"] = Field(
        "fail",
        description="What to do when the journal has lost events that a table needs next: `fail` stops and "
        "names them, `skip` continues with what is left.",
    )
    storage: Options = Field(
        default={},
        description="Options of the store, for a journal in one.",
        examples=[{"AWS_REGION": "eu-west-1"}],
    )

    @field_validator("headers")
    @classmethod
    def _no_secrets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if _NEVER_KEPT.search(name):
                raise ValueError(f"'{name}' may hold a secret and is never kept; remove it")
        return value

    @model_validator(mode="after")
    def _closed_or_on_loopback(self) -> Self:
        host, _ = split_address(self.listen)
        known = self.token or self.hmac or (self.tls and self.tls.client_ca)
        if not known and not is_loopback(host):
            raise ValueError(
                f"everybody who can connect to {self.listen} could send events; set `token`, `hmac` or "
                "`tls.client_ca`, or listen on 127.0.0.1"
            )
        if self.on_bad == "reject" and not self.takes_json:
            raise ValueError(
                "`on_bad: reject` looks into plain JSON only; with another format, `decompress` or a "
                "registry, bad records become dead letters: remove it"
            )
        if self.max_body > self.max_in_flight:
            raise ValueError("max_body is larger than max_in_flight: such a body could never be received")
        return self

    @property
    def tokens(self) -> dict[str, str]:
        """The tokens by the name of the sender; one without a name is under the empty text."""
        if self.token is None:
            return {}
        return {"": self.token} if isinstance(self.token, str) else dict(self.token)

    @property
    def has_shared_journal(self) -> bool:
        """Whether the journal is in a store, where a run on another machine can take it over."""
        return "://" in self.journal

    @property
    def takes_json(self) -> bool:
        """Whether a body is JSON that may hold several events."""
        return (
            self.format.type == "json"
            and not getattr(self.format, "decompress", None)
            and not getattr(self.format, "registry", None)
        )

    def client(self, pipeline: str, name: str) -> SourceClient:
        """Look at the journal, on the driver."""
        from lakefeed.sources.http.client import HttpClient

        return HttpClient(self, name)

    def for_workers(self) -> Self:
        """Tasks read the journal: who may send events is none of theirs."""
        return self.model_copy(update={"token": None, "hmac": None})

    def has_taken_over(self) -> bool:
        """Whether this run has the journal, which is in a store, for itself."""
        from lakefeed.sources.http.client import has_taken_over

        return has_taken_over(self)

    def known_streams(self) -> tuple[str, ...]:
        """Those that are accepted."""
        return self.streams

    def keeps_events_at(self) -> str:
        """The journal."""
        return self.journal

    def partition_of(self, stream: str | None, number: int) -> str:
        """A stream is one partition."""
        return stream or ""

    def stream_of(self, partition: str) -> str | None:
        """A partition is called as its stream."""
        return partition

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """Yield the events of the ranges out of the journal. Runs on a worker."""
        from lakefeed.sources.http.read import read

        return read(self, ranges)
