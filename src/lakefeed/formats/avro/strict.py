"""The strict path: one Avro payload at a time, which decides what is a row and why not."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakefeed.formats.avro.bytes import ByteReader
from lakefeed.formats.avro.schema import Node
from lakefeed.formats.refusal import Misfit

_MOST_EMPTY_ITEMS = 10_000
"""Items without bytes, such as nulls, that a list may have: the size of the payload is no bound for them."""


def read_strictly(schema: Node, payload: bytes, start: int) -> dict[str, Any]:
    """The columns of a payload whose content begins at a byte, for `pyarrow.array`. Raises Misfit."""
    reader = _Reader(payload, start)
    value = reader.value(schema)
    if reader.at != len(payload):
        left = len(payload) - reader.at
        raise Misfit("bad_avro", f"byte {reader.at + 1}: {left} bytes follow the end of the record")
    return value if schema.kind == "record" else {"value": value}


class _Reader(ByteReader):
    """Reads the value of any node; the methods are named as the kinds."""

    def value(self, node: Node) -> Any:
        return getattr(self, node.reader)(node)

    def null(self, _: Node) -> None:
        return None

    def boolean(self, _: Node) -> bool:
        byte = self.take(1, "a boolean")[0]
        if byte > 1:
            raise self.wrong(f"expected a boolean, 0 or 1, got {byte}", self.at - 1)
        return byte == 1

    def integer(self, _: Node) -> int:
        start = self.at
        number = self.long("an int")
        if not -(2**31) <= number < 2**31:
            raise self.wrong(f"expected an int of 32 bits, got {number}", start)
        return number

    def number(self, _: Node) -> int:
        return self.long("a long")

    def single(self, _: Node) -> Any:
        return struct.unpack("<f", self.take(4, "a float"))[0]

    def double(self, _: Node) -> Any:
        return struct.unpack("<d", self.take(8, "a double"))[0]

    def string(self, _: Node) -> str:
        content = self.counted("a string")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            index = self.at - len(content) + error.start
            raise self.wrong(f"0x{self._payload[index]:02x} is not UTF-8", index) from None

    def binary(self, node: Node) -> Any:
        start = self.at
        content = self.take(node.size, "a fixed") if node.kind == "fixed" else self.counted("bytes")
        if node.logical == "decimal":
            return self._decimal(content, node, start)
        if node.logical == "uuid":
            return str(uuid.UUID(bytes=content))
        if node.logical == "duration":
            return dict(zip(("months", "days", "millis"), struct.unpack("<III", content), strict=True))
        return content

    def _decimal(self, content: bytes, node: Node, start: int) -> Decimal:
        digits = int.from_bytes(content, "big", signed=True)
        precision, scale = node.made.precision, node.made.scale
        if abs(digits) >= 10**precision:
            raise self.wrong(f"expected a decimal of {precision} digits, got more", start)
        sign, text = ("-" if digits < 0 else ""), str(abs(digits))
        return Decimal(f"{sign}{text}E-{scale}")

    def enum(self, node: Node) -> str:
        return node.symbols[self._number("symbol", len(node.symbols))]

    def union(self, node: Node) -> Any:
        number = self._number("branch", len(node.branches))
        value = self.value(node.branches[number])
        members = [at for at, _ in node.members]
        if number not in members:
            return None
        if len(members) < 2 or not pa.types.is_struct(node.made):
            return value
        return {f"member{members.index(number)}": value}

    def _number(self, what: str, count: int) -> int:
        start = self.at
        number = self.long(f"the number of a {what}")
        if 0 <= number < count:
            return number
        several = "branches" if what == "branch" else f"{what}s"
        raise self.wrong(f"expected the number of one of {count} {several}, got {number}", start)

    def record(self, node: Node) -> dict[str, Any]:
        row = {}
        for name, field in node.fields:
            try:
                row[name] = self.value(field)
            except Misfit as misfit:
                raise misfit.within(name) from None
        return row

    def array(self, node: Node) -> list[Any]:
        assert node.item is not None
        item = node.item
        return self._items("an array", lambda: self.value(item))

    def map(self, node: Node) -> list[tuple[str, Any]]:
        assert node.item is not None
        item = node.item
        return self._items("a map", lambda: (self.string(node), self.value(item)))

    def _items(self, what: str, read: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        empty = 0
        while True:
            start = self.at
            count = self.long(f"the number of items of {what}")
            if count == 0:
                return found
            if count < 0:
                count = -count
                self.long(f"the size of {what}")
            for _ in range(count):
                before = self.at
                try:
                    found.append(read())
                except Misfit as misfit:
                    raise misfit.within(len(found)) from None
                empty += self.at == before
                if empty > _MOST_EMPTY_ITEMS:
                    raise self.wrong(f"expected at most {_MOST_EMPTY_ITEMS} items without content", start)


def read_each(
    schema: Node, payloads: Sequence[bytes], start: int, indexes: Sequence[int]
) -> tuple[list[dict[str, Any] | None], dict[int, Misfit]]:
    """The columns of the payloads at these indexes, null for those that are refused, and the refusals."""
    rows: list[dict[str, Any] | None] = []
    misfits: dict[int, Misfit] = {}
    for index in indexes:
        try:
            rows.append(read_strictly(schema, payloads[index], start))
        except Misfit as misfit:
            misfits[index] = misfit
            rows.append(None)
        except RecursionError:
            misfits[index] = Misfit("bad_avro", "the record is nested too deep")
            rows.append(None)
    return rows, misfits
