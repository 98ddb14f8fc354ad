"""Bytes become columns: one file per format, and the contract that they all keep."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from lakefeed.pipeline.connector import Connector


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

    @abstractmethod
    def decoder(self, schema: pa.Schema) -> Decoder:
        """A decoder for the declared schema; `lakefeed.pipeline.types` says how types are declared in Arrow.

        An empty schema knows no column, so that everything comes back as unknown.
        """
