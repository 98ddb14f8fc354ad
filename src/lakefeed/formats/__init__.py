"""Bytes become columns: one file per format, and the contract that they all keep."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from lakefeed.pipeline.connector import Connector
from lakefeed.pipeline.units import Size

DEFAULT_MAX_PAYLOAD = 64 * 1024**2


@dataclass(frozen=True)
class Refused:
    """A payload that did not become a row: its index among the payloads, and why."""

    index: int
    stage: str
    code: str
    error: str


@dataclass(frozen=True)
class Decoded:
    """What became of some payloads. `rows` holds the good ones in order, in the types of the table."""

    rows: pa.RecordBatch
    refused: list[Refused] = field(default_factory=list)
    unknown: pa.Schema | None = None
    """Columns that payloads have and the schema does not; None when there are none.

    New fields of known structs are included, as a struct of only the new fields.
    """


class Decoder(ABC):
    """Decodes payloads against one schema. Lives on a worker, used by one thread, many times."""

    @abstractmethod
    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every payload becomes a row or a refusal, never both, never neither. Raises only on a bug."""


class Format(Connector):
    """The model of a format in the pipeline file."""

    room: ClassVar[str] = "format"
    decompress: Literal["gzip", "zstd"] | None = Field(
        default=None,
        description="How each payload is compressed by its producer; left out: not at all. "
        "What a Kafka client compresses by itself is not meant.",
        examples=["gzip"],
    )
    max_payload: Size | None = Field(
        default=None,
        description="With `decompress`: the most bytes of a payload when it is decompressed; larger ones are "
        "refused. Left out: 64MB.",
        examples=["1MB"],
    )

    @model_validator(mode="after")
    def _max_payload_has_an_effect(self) -> Self:
        if self.max_payload is not None and self.decompress is None:
            raise ValueError("max_payload counts only with `decompress`; add that, or remove max_payload")
        return self

    def probe(self) -> str | None:
        """Ask what the format depends on outside of this machine, such as a schema registry; for `doctor`.

        Answers a sentence about it, or None if there is nothing to ask. Raises LakefeedError.
        """
        return None

    def decoder(self, schema: pa.Schema) -> Decoder:
        """A decoder for the declared schema; `lakefeed.pipeline.types` says how types are declared in Arrow.

        An empty schema knows no column, so that everything comes back as unknown.
        """
        plain = self.plain_decoder(schema)
        if self.decompress is None:
            return plain
        from lakefeed.formats.compression import DecompressingDecoder

        return DecompressingDecoder(plain, self.decompress, self.max_payload or DEFAULT_MAX_PAYLOAD)

    @abstractmethod
    def plain_decoder(self, schema: pa.Schema) -> Decoder:
        """What `decoder` answers for payloads that are not compressed; this is what a format implements."""
