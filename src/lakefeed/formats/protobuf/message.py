"""Messages as columns: what each field of a Protobuf descriptor becomes.

A `Message` is made once from a descriptor and says everything that the two readers need: the one that reads
many payloads together (`block`) and the one that decides a single payload (`strict`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakefeed.columns.column_types import TIMESTAMP

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
"""The ways in which a value lies in a payload, by the number in its tag."""

DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED_UINT64, FIXED_UINT32, BOOL = range(1, 9)
STRING, GROUP, MESSAGE, BYTES, UINT32, ENUM, FIXED_INT32, FIXED_INT64, SINT32, SINT64 = range(9, 19)
"""The types of fields, by the number in a descriptor."""

_SCALARS = {
    DOUBLE: (FIXED64, pa.float64()),
    FLOAT: (FIXED32, pa.float32()),
    INT64: (VARINT, pa.int64()),
    UINT64: (VARINT, pa.uint64()),
    INT32: (VARINT, pa.int32()),
    FIXED_UINT64: (FIXED64, pa.uint64()),
    FIXED_UINT32: (FIXED32, pa.uint32()),
    BOOL: (VARINT, pa.bool_()),
    STRING: (LENGTH, pa.string()),
    BYTES: (LENGTH, pa.binary()),
    UINT32: (VARINT, pa.uint32()),
    ENUM: (VARINT, pa.string()),
    FIXED_INT32: (FIXED32, pa.int32()),
    FIXED_INT64: (FIXED64, pa.int64()),
    SINT32: (VARINT, pa.int32()),
    SINT64: (VARINT, pa.int64()),
}


_DEEPEST = 100


class TooDeep(Exception):
    """Messages are nested deeper than Protobuf itself reads them."""


class Form(Enum):
    """What a message becomes."""

    STRUCT = "a struct of its fields"
    TIMESTAMP = "a timestamp"
    DURATION = "microseconds"
    WRAPPED = "the value of its only field, or null"
    EMPTY = "true, as it has no fields"
    JSON = "the text of its JSON, as its shape has no end"


FREE = frozenset(f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue"))
"""Protobuf's own messages for any JSON."""

_FORMS = {
    "google.protobuf.Timestamp": Form.TIMESTAMP,
    "google.protobuf.Duration": Form.DURATION,
    **dict.fromkeys(
        (
            f"google.protobuf.{kind}Value"
            for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
        ),
        Form.WRAPPED,
    ),
    **dict.fromkeys(FREE, Form.JSON),
}


@dataclass(frozen=True)
class Field:
    """One field of a message. `column` is what it becomes; `value` is the type of one of its values."""

    number: int
    name: str
    type: int
    wire: int
    value: pa.DataType
    repeated: bool = False
    implicit: bool = False
    """Whether a missing value is the default, such as 0, and not null."""
    required: bool = False
    once: str | None = None
    """Fields with the same text here replace or merge with each other when a payload has two of them."""
    message: Message | None = None
    names: dict[int, str] = field(default_factory=dict)
    """The values of an enum."""
    closed: bool = False

    @property
    def is_map(self) -> bool:
        """Whether this is a map: repeated entries of a key and a value."""
        return self.message is not None and self.message.is_entry

    @property
    def packable(self) -> bool:
        """Whether all values may lie together behind one tag."""
        return self.repeated and self.wire != LENGTH

    @property
    def column(self) -> pa.Field:
        """The column of the table."""
        if self.is_map:
            assert self.message is not None
            return pa.field(self.name, pa.map_(pa.string(), pa.field("value", self.message.fields[1].value)))
        kind = pa.list_(pa.field("element", self.value)) if self.repeated else self.value
        return pa.field(self.name, kind)


@dataclass(frozen=True)
class Message:
    """A message type. `type` is what a value of it becomes."""

    name: str
    form: Form
    fields: tuple[Field, ...]
    type: pa.DataType
    is_entry: bool = False
    descriptor: Any = None
    """For the text of its JSON."""
    by_number: dict[int, Field] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.by_number.update({each.number: each for each in self.fields})


def message_of(descriptor: Descriptor) -> Message:
    """How payloads of this message become columns; the message itself is always a struct. Raises TooDeep."""
    return _struct(descriptor, (descriptor.full_name,))


@lru_cache(1024)
def opened(descriptor: Descriptor) -> Message:
    """The fields of a message that becomes JSON, for a look at its bytes; messages in it are JSON again."""
    return _struct(descriptor, None)


def _struct(descriptor: Descriptor, path: tuple[str, ...] | None) -> Message:
    fields = tuple(_field(each, path) for each in descriptor.fields)
    columns = pa.struct([each.column for each in fields])
    entry = descriptor.GetOptions().map_entry
    return Message(descriptor.full_name, Form.STRUCT, fields, columns, entry, descriptor)


def _message(descriptor: Descriptor, path: tuple[str, ...] | None) -> Message:
    name = descriptor.full_name
    form = _FORMS.get(name)
    if form is Form.JSON or path is None or name in path:
        return Message(name, Form.JSON, (), pa.string(), descriptor=descriptor)
    if len(path) > _DEEPEST:
        raise TooDeep(f"messages are nested more than {_DEEPEST} levels deep at {name}")
    inner = _struct(descriptor, (*path, name))
    if form is None:
        return inner if inner.fields else Message(name, Form.EMPTY, (), pa.bool_())
    kinds = {Form.TIMESTAMP: TIMESTAMP, Form.DURATION: pa.int64()}
    return Message(name, form, inner.fields, kinds.get(form) or inner.fields[0].value)


def _field(descriptor: FieldDescriptor, path: tuple[str, ...] | None) -> Field:
    in_entry = descriptor.containing_type.GetOptions().map_entry
    holder = descriptor.containing_oneof
    message = None
    if descriptor.type in (MESSAGE, GROUP):
        message = _message(descriptor.message_type, path)
        wire = LENGTH if descriptor.type == MESSAGE else START_GROUP
    else:
        wire, value = _SCALARS[descriptor.type]
    enum = descriptor.enum_type
    # A message that comes twice is merged, and of a oneof the last member counts.
    once = holder.name if holder else descriptor.name if message and not descriptor.is_repeated else None
    return Field(
        number=descriptor.number,
        name=descriptor.name,
        type=descriptor.type,
        wire=wire,
        value=message.type if message else value,
        repeated=descriptor.is_repeated,
        implicit=in_entry or not (descriptor.has_presence or descriptor.is_repeated),
        required=descriptor.is_required,
        once=once,
        message=message,
        names=_names(enum) if enum else {},
        closed=bool(enum and enum.is_closed),
    )


def _names(enum: EnumDescriptor) -> dict[int, str]:
    """The names of an enum's values; of several for one value the first, as Protobuf's own JSON has it."""
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return names
