"""Bytes become columns: one file per format, and the contract that they all keep."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from lakefeed.events import Refused
from lakefeed.pipeline.connectors import Connector, connector_named, connector_names
from lakefeed.pipeline.options.evolve import NewColumn, TypeChange
from lakefeed.pipeline.options.names import Names
from lakefeed.pipeline.options.registry import Registry
from lakefeed.units import Size

if TYPE_CHECKING:
    from lakefeed.formats.avro.format import AvroFormat as AvroFormat
    from lakefeed.formats.bytes import BytesFormat as BytesFormat
    from lakefeed.formats.csv.format import CsvFormat as CsvFormat
    from lakefeed.formats.debezium.format import DebeziumFormat as DebeziumFormat
    from lakefeed.formats.event import EventFormat as EventFormat
    from lakefeed.formats.int64 import Int64Format as Int64Format
    from lakefeed.formats.json.format import JsonFormat as JsonFormat
    from lakefeed.formats.parquet import ParquetFormat as ParquetFormat
    from lakefeed.formats.protobuf.format import ProtobufFormat as ProtobufFormat
    from lakefeed.formats.refusal import Misfits
    from lakefeed.formats.text import TextFormat as TextFormat

DEFAULT_MAX_PAYLOAD = 64 * 1024**2


@dataclass(frozen=True)
class Decoded:
    """What became of some payloads. `rows` holds the good ones in order, in the types of the table."""

    rows: pa.RecordBatch
    refused: list[Refused] = field(default_factory=list)
    unknown: pa.Schema | None = None
    """Columns that payloads have and the schema does not; None when there are none.

    New fields of known structs are included, as a struct of only the new fields.
    """
    rescued: pa.Array | None = None
    """For each row what did not fit, as the text of a JSON object, or null; None when everything fitted."""
    skipped: list[int] = field(default_factory=list)
    """The indexes of payloads that carry nothing, such as tombstones, and are neither row nor refusal."""


@dataclass(frozen=True)
class Rules:
    """What a decoder does with what the schema does not foresee.

    A new column is a field with a value (null is none) that the schema lacks, also inside a known struct:

    - `add`, `fail`: it is returned as `unknown`; a name that no table holds refuses the payload (`bad_name`)
    - `ignore`: it is left out, whatever its name, and nobody looks at its value
    - `rescue`: it goes into `rescued`, whatever its name, under its path
    - `dead_letter`: its payload is refused (`new_column`)

    A type change is a value that does not fit its column:

    - `dead_letter`, `fail`, `widen`: its payload is refused, with one of `refusal.TYPE_CHANGES`
    - `rescue`: it goes into `rescued`, and its column is null there; of nested values, the smallest field of
      a struct that holds it. A column that is `not null` still refuses the payload.
    """

    new_column: NewColumn = "add"
    type_change: TypeChange = "dead_letter"
    dropped: frozenset[str] = frozenset()
    """Fields of the payload itself that are always ignored."""
    taken: frozenset[str] = frozenset()
    """Names in lower case that no new column may have, as the table makes columns by these names itself."""
    renamed: frozenset[str] = frozenset()
    """Fields of the payload itself that get another name in the table, and so may have any."""
    changes: bool = False
    """Whether the table applies changes: of a change event, it takes the row that the event is about."""
    transforms: tuple[tuple[str, str], ...] = ()
    """Fields that are set in each event before it is decoded, and the expressions for them."""
    converts: frozenset[str] = frozenset()
    """Columns of a source that had another type before: values of that type become the one of the table."""
    names: Names = "strict"
    """Unless `strict`, names that differ by case are one, and names that no column may have are welcome."""
    exact: frozenset[str] = frozenset()
    """Columns whose type was inferred: a whole number in JSON that a float would round does not fit them."""
    coerces: bool = False
    """Whether values that do not fit are made to fit as kafka-delta-ingest does, where it does."""


DEFAULT_RULES = Rules()


class Decoder(ABC):
    """Decodes payloads against one schema. Lives on a worker, used by one thread, many times."""

    @abstractmethod
    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every payload becomes a row or a refusal or is skipped, never two of them. Raises only on a bug."""


class Format(Connector):
    """The model of a format in the pipeline file."""

    room: ClassVar[str] = "format"
    decompress: Literal["gzip", "zstd"] | None = Field(
        default=None,
        description="How the producer has compressed each payload; left out: not compressed. Do not set it "
        "for the compression of the Kafka client.",
        examples=["gzip"],
    )
    max_payload: Size | None = Field(
        default=None,
        description="With `decompress`: the maximum size of a decompressed payload; larger ones are "
        "refused. Left out: 64MB.",
        examples=["1MB"],
    )

    @model_validator(mode="after")
    def _max_payload_has_an_effect(self) -> Self:
        if self.max_payload is not None and self.decompress is None:
            raise ValueError(
                "max_payload has an effect only with `decompress`; add that, or remove max_payload"
            )
        return self

    def probe(self) -> str | None:
        """Ask what the format depends on outside of this machine, such as a schema registry; for `doctor`.

        Returns a sentence about it, or None if there is nothing to ask. Raises LakefeedError.
        """
        registry: Registry | None = getattr(self, "registry", None)
        if registry is None:
            return None
        from lakefeed.formats.registry.client import client_of

        client_of(registry).probe()
        return f"the schema registry {registry.url} answers"

    def decoder(self, schema: pa.Schema, rules: Rules = DEFAULT_RULES) -> Decoder:
        """A decoder for the declared schema, in the types of `lakefeed.columns.column_types`.

        An empty schema knows no column, so that everything comes back as unknown.
        """
        plain = self.plain_decoder(schema, rules)
        if self.decompress is None:
            return plain
        from lakefeed.formats.compression import DecompressingDecoder

        return DecompressingDecoder(plain, self.decompress, self.max_payload or DEFAULT_MAX_PAYLOAD)

    @abstractmethod
    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> Decoder:
        """What `decoder` returns for payloads that are not compressed; this is what a format implements."""

    has_objects: ClassVar[bool] = False
    """Whether a payload is an object in which fields can be set, so that `transform` and `coerce` work."""

    def objects(self, payloads: Sequence[bytes | None]) -> tuple[list[bytes | None], Misfits]:
        """Each payload as the text of a JSON object, and those that are none, by their index."""
        misfits: Misfits = {}
        if self.decompress is not None:
            from lakefeed.formats.compression import decompressed

            limit = self.max_payload or DEFAULT_MAX_PAYLOAD
            payloads, misfits = decompressed(payloads, self.decompress, limit)
        texts, broken = self.plain_objects(payloads)
        return texts, {**broken, **misfits}

    def plain_objects(self, payloads: Sequence[bytes | None]) -> tuple[list[bytes | None], Misfits]:
        """What `objects` returns for payloads that are not compressed, of a format that `has_objects`."""
        raise NotImplementedError


def __getattr__(name: str) -> Any:
    """The model of each format, imported when it is used: `from lakefeed.formats import JsonFormat`."""
    return connector_named("format", name)


def __dir__() -> list[str]:
    """Everything here, with the model of each format, whether it is imported yet or not."""
    return sorted({*globals(), *connector_names("format")})
