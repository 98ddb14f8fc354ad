"""A way through one payload: what is wrong with it and where, which Protobuf's own parser does not say."""

from __future__ import annotations

from collections.abc import Iterator

from lakefeed.formats.protobuf import message as pb
from lakefeed.formats.protobuf.json import as_written
from lakefeed.formats.protobuf.message import Field, Form, Message
from lakefeed.formats.refusal import Misfit

_LONGEST_VARINT = 10
_DEEPEST = 100
_WIRES = {
    pb.VARINT: "a varint",
    pb.FIXED64: "8 bytes",
    pb.LENGTH: "a length and bytes",
    pb.START_GROUP: "a group",
    pb.FIXED32: "4 bytes",
}


class Walk:
    """A way through one payload, field by field. Raises Misfit with the position of what is wrong."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self.unknown: dict[str, list[bytes]] = {}

    def message(self, message: Message, at: int, end: int, path: tuple[str, ...]) -> None:
        """Check the fields of a message that lies between two positions, and what is inside them."""
        if message.form is Form.JSON:
            # A Struct has no number of 32 bits, and a map in no order, so that all of them would be walked.
            if message.name in pb.FREE or as_written(message, self._payload[at:end]):
                return
            message = pb.opened(message.descriptor)
        if len(path) > _DEEPEST:
            raise self._broken(at, f"messages are nested more than {_DEEPEST} levels deep")
        seen = set()
        for number, wire, start, stop in self._fields(at, end):
            field = message.by_number.get(number)
            if field is None and message.is_entry:
                # Protobuf's parser would leave out the whole entry without a word.
                raise self._broken(start, f"field {number} in the entry of a map")
            if field is None:
                name = ".".join((*path, str(number)))
                self.unknown.setdefault(name, []).append(self._payload[start:stop])
                continue
            seen.add(number)
            try:
                self._check(field, wire, start, stop, path)
            except Misfit as misfit:
                raise misfit.within(field.name) from None
        for field in message.fields:
            if field.required and field.number not in seen:
                raise Misfit("bad_protobuf", f"required by {message.name}, but missing").within(field.name)

    def _check(self, field: Field, wire: int, start: int, stop: int, path: tuple[str, ...]) -> None:
        if wire != field.wire and not (wire == pb.LENGTH and field.packable):
            # Protobuf's parser would take it for a field that it does not know, and the value for missing.
            raise self._broken(start, f"expected {_WIRES[field.wire]}, got {_WIRES[wire]}")
        if field.message:
            self.message(field.message, start, stop, (*path, field.name))
        elif field.type == pb.STRING:
            try:
                self._payload[start:stop].decode()
            except UnicodeDecodeError as error:
                at = start + error.start
                raise Misfit("not_utf8", f"byte {at + 1}: 0x{self._payload[at]:02x} is not UTF-8") from None
        elif wire == pb.LENGTH and field.wire in (pb.FIXED32, pb.FIXED64):
            if (stop - start) % (width := 4 if field.wire == pb.FIXED32 else 8):
                raise self._broken(start, f"{stop - start} packed bytes are no multiple of {width}")
        elif field.wire == pb.VARINT:
            at = start
            while at < stop:
                byte, (number, at) = at, self._varint(at, stop)
                self._refuse_if_too_wide(field, number, byte)
                if field.closed and _signed(number) not in field.names:
                    raise self._broken(start, f"{_signed(number)} is not a value of the enum")

    def _refuse_if_too_wide(self, field: Field, number: int, at: int) -> None:
        """Refuse a number that its field of 32 bits would not hold; Protobuf's parser would cut it to fit."""
        if field.type in (pb.INT32, pb.ENUM):
            number = number - (1 << 64) if number >> 63 else number
            fits = -(1 << 31) <= number < 1 << 31
        elif field.type in (pb.UINT32, pb.SINT32):
            fits = number < 1 << 32
            number = (number >> 1) ^ -(number & 1) if field.type == pb.SINT32 else number
        else:
            return
        if not fits:
            raise Misfit("out_of_range", f"byte {at + 1}: expected a number of 32 bits, got {number}")

    def _fields(self, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Number, way of lying, first byte and the position behind the last byte of each value."""
        while at < end:
            tag, start = self._varint(at, end)
            number, wire = tag >> 3, tag & 7
            if not 0 < number < 1 << 29 or wire not in _WIRES:
                raise self._broken(at, f"{tag} is no tag of a field")
            stop, after = self._skip(wire, number, start, end, 0)
            if wire == pb.LENGTH:
                start = self._varint(start, end)[1]
            yield number, wire, start, stop
            at = after

    def _skip(self, wire: int, number: int, at: int, end: int, depth: int) -> tuple[int, int]:
        """The positions behind a value and behind the whole field, which differ for a group."""
        if wire == pb.VARINT:
            stop = self._varint(at, end)[1]
        elif wire == pb.LENGTH:
            length, at = self._varint(at, end)
            stop = at + length
        elif wire == pb.START_GROUP:
            return self._group(number, at, end, depth)
        else:
            stop = at + (8 if wire == pb.FIXED64 else 4)
        if stop > end:
            raise self._broken(at, f"field {number} needs {stop - at} bytes, {end - at} are left")
        return stop, stop

    def _group(self, number: int, at: int, end: int, depth: int) -> tuple[int, int]:
        if depth > _DEEPEST:
            raise self._broken(at, f"groups are nested more than {_DEEPEST} levels deep")
        while at < end:
            tag, start = self._varint(at, end)
            if tag == number << 3 | pb.END_GROUP:
                return at, start
            if tag & 7 not in _WIRES or not tag >> 3:
                break
            at = self._skip(tag & 7, tag >> 3, start, end, depth + 1)[1]
        raise self._broken(at, f"the group of field {number} is not closed")

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for index, byte in enumerate(self._payload[at : min(end, at + _LONGEST_VARINT)]):
            value |= (byte & 127) << 7 * index
            if byte < 128:
                if value >> 64:
                    raise self._broken(at, "a number has more than 64 bits")
                return value, at + index + 1
        cut = at + _LONGEST_VARINT > end
        raise self._broken(
            at, "the payload ends within a number" if cut else "a number has more than 10 bytes"
        )

    def _broken(self, at: int, message: str) -> Misfit:
        return Misfit("bad_protobuf", f"byte {at + 1}: {message}")


def _signed(number: int) -> int:
    low = number & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low
