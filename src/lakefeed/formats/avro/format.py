"""The `avro` format: one record per payload, its fields are the columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, PrivateAttr, model_validator

from lakefeed.formats import Decoded, Decoder, Format, Rules
from lakefeed.formats.avro.reader import Container, Encoding, Plain, Registered, SingleObject
from lakefeed.formats.avro.schema import SchemaProblem, fingerprint, parsed
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.joining import joined
from lakefeed.formats.refusal import FRAMED, VALUES, Misfits, codes
from lakefeed.pipeline.options.paths import LocalPath
from lakefeed.pipeline.options.registry import RegistryField
from lakefeed.text import shown

CODES = codes(*FRAMED, "too_deep", "many_records", "bad_avro", "bad_transform", *VALUES)
"""Every code of a refused payload and what it means, in the order of the checks."""


class AvroFormat(Format):
    """Avro records, one per payload."""

    type: Literal["avro"] = "avro"
    registry: RegistryField | None = Field(
        default=None,
        description="The schema registry of payloads in Confluent's wire format: its URL, or a mapping.",
        examples=["http://localhost:8081"],
    )
    schema_file: LocalPath | None = Field(
        default=None,
        description="A file with the schema that payloads were written with (JSON, usually `.avsc`). With "
        "`encoding: single_object` also a folder of such files.",
        examples=["click.avsc"],
    )
    encoding: Literal["plain", "single_object", "container"] | None = Field(
        default=None,
        description="Without a registry, the encoding of payloads: `plain` records of the one schema, "
        "records in the `single_object` encoding, or `container` files of one record. Left out: "
        "`plain`.",
    )

    _texts: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _read_schemas(self) -> Self:
        """Read the schemas here, on the driver: workers need no files, and mistakes show before a start."""
        if problem := self._clash():
            raise ValueError(problem)
        if self.schema_file is not None:
            self._texts = tuple(_text(file) for file in _files(Path(self.schema_file), self.encoding))
        return self

    def _clash(self) -> str | None:
        if self.registry is not None:
            other = "schema_file" if self.schema_file else "encoding" if self.encoding else None
            return f"registry and {other} exclude each other; remove one of them" if other else None
        if self.encoding == "container":
            return "a container holds its own schema; remove schema_file" if self.schema_file else None
        return None if self.schema_file else "expected `registry`, `schema_file` or `encoding: container`"

    def reader(self) -> Encoding:
        """What reads payloads into the types of their writers."""
        if self.registry is not None:
            return Registered(self.registry)
        if self.encoding == "container":
            return Container()
        if self.encoding == "single_object":
            return SingleObject({fingerprint(text): parsed(text) for text in self._texts})
        return Plain(parsed(self._texts[0]))

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> AvroDecoder:
        """A decoder of payloads that are Avro as they are."""
        return AvroDecoder(self.reader(), schema, rules)

    has_objects: ClassVar[bool] = True

    def plain_objects(self, payloads: Sequence[bytes | None]) -> tuple[list[bytes | None], Misfits]:
        """Each record as JSON: bytes as base64, times as RFC 3339, numbers with all their digits."""
        from lakefeed.formats.fit.json_text import json_texts

        made, misfits = self.reader().read(payloads)
        texts: list[bytes | None] = [None] * len(payloads)
        for part in made:
            misfits |= {part.indexes[at]: misfit for at, misfit in part.misfits.items()}
            for index, text in zip(part.indexes, json_texts(part.values), strict=True):
                texts[index] = text.encode()
        return texts, misfits


class AvroDecoder(Decoder):
    """Decodes records of any number of writers, whose types meet those of the table."""

    def __init__(self, reader: Encoding, schema: pa.Schema, rules: Rules) -> None:
        self._reader = reader
        self._fitter = Fitter(schema, rules)

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every payload becomes a row or a refusal. Raises RegistryError if the registry does not answer."""
        made, refused = self._reader.read(payloads)
        parts = [(part.indexes, self._fitter.fit(part.values, part.misfits)) for part in made]
        return joined(len(payloads), parts or [((), self._fitter.nothing())], refused)


def _files(path: Path, encoding: str | None) -> list[Path]:
    if not path.is_dir():
        return [path]
    if encoding != "single_object":
        raise ValueError(
            f"schema_file is a folder, {shown(str(path))}; only single_object reads many schemas"
        )
    files = sorted(path.glob("*.avsc"))
    if not files:
        raise ValueError(f"schema_file is a folder without a file *.avsc: {shown(str(path))}")
    return files


def _text(file: Path) -> str:
    try:
        text = file.read_text()
        parsed(text)
    except OSError as error:
        raise ValueError(f"schema_file {shown(str(file))} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"schema_file {shown(str(file))} is not UTF-8 text") from None
    except SchemaProblem as problem:
        raise ValueError(f"schema_file {shown(str(file))}: {problem}") from None
    return text
