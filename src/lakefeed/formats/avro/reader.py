"""Avro payloads become columns in the types of their writers; what those meet then is not known here.

How a payload says which schema it was written with is what the encodings differ in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np
import pyarrow as pa

from lakefeed.formats.avro.block import read_columns
from lakefeed.formats.avro.container import opened
from lakefeed.formats.avro.schema import Node, SchemaProblem, parsed
from lakefeed.formats.avro.strict import read_each
from lakefeed.formats.fit.doubt import with_rows
from lakefeed.formats.joining import groups
from lakefeed.formats.refusal import Misfit, Misfits, no_payload
from lakefeed.formats.registry.client import RegisteredSchema
from lakefeed.formats.registry.framing import HEADER, by_header, framed, registered
from lakefeed.pipeline.options.registry import Registry

_TOGETHER = 256 * 1024**2
"""Bytes that are read at once: positions in them must fit into 32 bits, with room for one large payload."""
_SINGLE_OBJECT = b"\xc3\x01"
_SINGLE_OBJECT_HEADER = 10


@dataclass(frozen=True)
class Written:
    """Payloads of one schema: their indexes, what they hold, and where that begins in each."""

    schema: Node
    indexes: Sequence[int]
    contents: Sequence[bytes]
    start: int = 0


Sorted = tuple[list[Written], Misfits]
"""Payloads by the schema that they were written with, and those for which there is none."""


@dataclass(frozen=True)
class ReadRecords:
    """What was read of some payloads: a struct for each, null for those that are misfits."""

    indexes: Sequence[int]
    values: pa.StructArray
    misfits: Mapping[int, Misfit]
    """By the index in `indexes`."""


class Encoding(ABC):
    """How payloads say which schema they were written with."""

    @abstractmethod
    def sort(self, payloads: Sequence[bytes | None], indexes: Sequence[int]) -> Sorted:
        """Sort the payloads at these indexes, none of which is null. Raises RegistryError."""

    def read(self, payloads: Sequence[bytes | None]) -> tuple[list[ReadRecords], Misfits]:
        """What each payload holds, by writer, and those that hold nothing that can be read."""
        indexes: Sequence[int] = range(len(payloads))
        absent: list[int] = []
        if None in payloads:
            absent = [index for index in indexes if payloads[index] is None]
            indexes = [index for index in indexes if payloads[index] is not None]
        found, misfits = self.sort(payloads, indexes)
        misfits |= {index: no_payload() for index in absent}
        return [_made(part) for written in found for part in _parts(written)], misfits


@dataclass(frozen=True)
class Plain(Encoding):
    """Nothing but the record; all payloads have one schema."""

    schema: Node

    def sort(self, payloads: Sequence[bytes | None], indexes: Sequence[int]) -> Sorted:
        """All of them together."""
        return [Written(self.schema, indexes, _at(payloads, indexes))], {}


@dataclass(frozen=True)
class SingleObject(Encoding):
    """Two bytes that say so, then the fingerprint of the schema."""

    schemas: Mapping[bytes, Node]

    def sort(self, payloads: Sequence[bytes | None], indexes: Sequence[int]) -> Sorted:
        """By fingerprint."""
        found: list[Written] = []
        misfits: Misfits = {}
        for header, those in by_header(payloads, indexes, _SINGLE_OBJECT_HEADER).items():
            schema = self.schemas.get(header[len(_SINGLE_OBJECT) :])
            if schema is not None and header.startswith(_SINGLE_OBJECT):
                found.append(Written(schema, those, _at(payloads, those), _SINGLE_OBJECT_HEADER))
            else:
                misfits |= dict.fromkeys(those, self._misfit(header))
        return found, misfits

    def _misfit(self, header: bytes) -> Misfit:
        if len(header) < _SINGLE_OBJECT_HEADER or not header.startswith(_SINGLE_OBJECT):
            got = f"0x{header[:2].hex()}" if header else "an empty payload"
            got = f"{len(header)} bytes in all" if header.startswith(_SINGLE_OBJECT) else got
            return Misfit("bad_framing", f"expected 0xc301 and a fingerprint of 8 bytes, got {got}")
        number = header[len(_SINGLE_OBJECT) :][::-1].hex()
        return Misfit("unknown_schema", f"no schema of `schema_file` has the fingerprint {number}")


@dataclass(frozen=True)
class Registered(Encoding):
    """Confluent's wire format: the number of the schema in a registry."""

    registry: Registry

    def described(self, schema: RegisteredSchema) -> RegisteredSchema:
        """The schema as it is to be read; a format may know more than Avro says."""
        return schema

    def sort(self, payloads: Sequence[bytes | None], indexes: Sequence[int]) -> Sorted:
        """By number."""
        found: list[Written] = []
        by_schema, misfits = framed(payloads, indexes)
        for number, those in by_schema.items():
            try:
                schema = _registered(self.described(registered(self.registry, number, "AVRO")))
                found.append(Written(schema, those, _at(payloads, those), HEADER))
            except Misfit as misfit:
                misfits |= dict.fromkeys(those, misfit)
            except SchemaProblem as problem:
                message = f"schema {number} of the registry: {problem}"
                misfits |= dict.fromkeys(those, Misfit("bad_schema", message))
        return found, misfits


@dataclass(frozen=True)
class Container(Encoding):
    """Container files; the schema is in each of them."""

    def sort(self, payloads: Sequence[bytes | None], indexes: Sequence[int]) -> Sorted:
        """By the text of the schema."""
        misfits: Misfits = {}
        by_schema: dict[str, tuple[list[int], list[bytes]]] = {}
        for index in indexes:
            try:
                text, content = opened(payloads[index] or b"")
                _contained(text)
            except Misfit as misfit:
                misfits[index] = misfit
            except SchemaProblem as problem:
                misfits[index] = Misfit("bad_schema", f"the schema of the container: {problem}")
            else:
                those, contents = by_schema.setdefault(text, ([], []))
                those.append(index)
                contents.append(content)
        found = [Written(_contained(text), *those) for text, those in by_schema.items()]
        return found, misfits


@lru_cache(maxsize=256)
def _contained(text: str) -> Node:
    return parsed(text)


@lru_cache(maxsize=1024)
def _registered(schema: RegisteredSchema) -> Node:
    return parsed(schema.text, tuple(dict.fromkeys(_references(schema))))


def _references(schema: RegisteredSchema) -> Iterator[str]:
    """The texts of all schemas that one uses, each after those that it uses itself."""
    for reference in schema.references:
        yield from _references(reference.schema)
        yield reference.schema.text


def _at(payloads: Sequence[bytes | None], indexes: Sequence[int]) -> Sequence[bytes]:
    """The payloads at these indexes, which are in order; as they are if these are all."""
    if len(indexes) == len(payloads):
        return cast(Sequence[bytes], payloads)
    return [payloads[index] or b"" for index in indexes]


def _parts(written: Written) -> Iterator[Written]:
    """The same payloads, as many at a time as may be read together."""
    for start, end in groups(written.contents, _TOGETHER):
        yield replace(written, indexes=written.indexes[start:end], contents=written.contents[start:end])


def _made(written: Written) -> ReadRecords:
    values, doubt = read_columns(written.schema, written.contents, written.start)
    if not doubt.any():
        return ReadRecords(written.indexes, values, {})
    indexes = np.flatnonzero(doubt).tolist()
    rows, misfits = read_each(written.schema, written.contents, written.start, indexes)
    return ReadRecords(written.indexes, with_rows(values, indexes, rows), misfits)
