"""The source text of a `.proto` file becomes a descriptor, without a compiler.

Schema registries hold this text, and `protoc` is no Python package. What decides how payloads are read is
taken: messages, fields, enums. Services, extensions and options are not: they change no byte that is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakefeed.formats.protobuf import message as pb
from lakefeed.formats.protobuf.proto.tokens import ProtoSyntaxError, Tokens

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto

_TYPES = {
    "double": pb.DOUBLE,
    "float": pb.FLOAT,
    "int64": pb.INT64,
    "uint64": pb.UINT64,
    "int32": pb.INT32,
    "fixed64": pb.FIXED_UINT64,
    "fixed32": pb.FIXED_UINT32,
    "bool": pb.BOOL,
    "string": pb.STRING,
    "bytes": pb.BYTES,
    "uint32": pb.UINT32,
    "sfixed32": pb.FIXED_INT32,
    "sfixed64": pb.FIXED_INT64,
    "sint32": pb.SINT32,
    "sint64": pb.SINT64,
}
_LABELS = {"optional": 1, "required": 2, "repeated": 3}
_DEEPEST = 50


def file_descriptor(name: str, text: str) -> FileDescriptorProto:
    """The descriptor of a file with this name. Raises ProtoSyntaxError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name=name, syntax="proto2")
    tokens = Tokens(text)
    while tokens.next:
        _statement(tokens, file)
    return file


def _statement(tokens: Tokens, file: FileDescriptorProto) -> None:
    if tokens.takes("syntax"):
        tokens.expect("=")
        file.syntax = tokens.quoted("a syntax")
        if file.syntax not in ("proto2", "proto3"):
            raise ProtoSyntaxError(f"expected the syntax proto2 or proto3, got {file.syntax}")
        tokens.expect(";")
    elif tokens.next == "edition":
        raise ProtoSyntaxError(
            "expected the syntax proto2 or proto3, got an edition; give a descriptor set that protoc made"
        )
    elif tokens.takes("package"):
        file.package = tokens.name("a package")
        tokens.expect(";")
    elif tokens.takes("import"):
        public = tokens.takes("public")
        if not public and not tokens.takes("weak") and tokens.takes("option"):
            return tokens.skip_statement()
        if public:
            file.public_dependency.append(len(file.dependency))
        file.dependency.append(tokens.quoted("a file"))
        tokens.expect(";")
    elif tokens.takes("message"):
        _Body(tokens, file.message_type.add(), file.syntax == "proto3").read(0)
    elif tokens.takes("enum"):
        _enum(tokens, file.enum_type.add())
    elif tokens.takes("option") or tokens.takes("service") or tokens.takes("extend"):
        tokens.skip_statement()
    elif not tokens.takes(";"):
        raise tokens.error("message, enum, import, package, option, service or extend")
    return None


def _enum(tokens: Tokens, enum: EnumDescriptorProto) -> None:
    enum.name = tokens.name("the name of an enum")
    tokens.expect("{")
    while not tokens.takes("}"):
        if tokens.takes(";"):
            continue
        name = tokens.name("the name of a value")
        if name in ("option", "reserved") and tokens.next != "=":
            if name == "option" and tokens.next == "allow_alias":
                enum.options.allow_alias = True
            tokens.skip_statement()
            continue
        tokens.expect("=")
        enum.value.add(name=name, number=tokens.whole_number("the number of a value"))
        _end_of_field(tokens)


def _end_of_field(tokens: Tokens) -> None:
    if tokens.next == "[":
        tokens.skip_block()
    tokens.expect(";")


class _Body:
    """Reads what is between the braces of a message."""

    def __init__(self, tokens: Tokens, message: DescriptorProto, proto3: bool) -> None:
        self._tokens = tokens
        self._message = message
        self._proto3 = proto3
        self._optional: list[Any] = []

    def read(self, depth: int) -> None:
        """Read a message from its name on."""
        self._message.name = self._tokens.name("the name of a message")
        self.read_block(depth)

    def read_block(self, depth: int) -> None:
        """Read a message whose name is known."""
        if depth > _DEEPEST:
            raise ProtoSyntaxError(f"messages are nested more than {_DEEPEST} levels deep")
        self._tokens.expect("{")
        while not self._tokens.takes("}"):
            self._member(depth)
        # As protoc does: behind the others, each in a oneof of its own.
        for field in self._optional:
            field.oneof_index = len(self._message.oneof_decl)
            self._message.oneof_decl.add(name=f"_{field.name}")

    def _member(self, depth: int) -> None:
        tokens = self._tokens
        if tokens.takes(";"):
            return
        first = tokens.name("a field")
        # These words are no keywords: a type or a package may have such a name too.
        if first == "message" and tokens.next != ".":
            _Body(tokens, self._message.nested_type.add(), self._proto3).read(depth + 1)
        elif first == "enum":
            _enum(tokens, self._message.enum_type.add())
        elif first in ("option", "reserved", "extensions", "extend"):
            tokens.skip_statement()
        elif first == "oneof":
            self._oneof(depth)
        elif first in _LABELS:
            self._field(tokens.name("the type of a field"), first, depth)
        else:
            self._field(first, None, depth)

    def _oneof(self, depth: int) -> None:
        tokens, index = self._tokens, len(self._message.oneof_decl)
        self._message.oneof_decl.add(name=tokens.name("the name of a oneof"))
        tokens.expect("{")
        while not tokens.takes("}"):
            if tokens.takes(";"):
                continue
            kind = tokens.name("a field")
            if kind == "option":
                tokens.skip_statement()
            else:
                self._field(kind, None, depth).oneof_index = index

    def _field(self, kind: str, label: str | None, depth: int) -> Any:
        tokens = self._tokens
        if kind == "map" and tokens.next == "<":
            return self._map()
        field = self._message.field.add(label=_LABELS[label or "optional"])
        field.name = tokens.name("the name of a field")
        tokens.expect("=")
        field.number = tokens.whole_number("the number of a field")
        if kind == "group":
            if tokens.next == "[":
                tokens.skip_block()
            group = self._message.nested_type.add(name=field.name)
            _Body(tokens, group, self._proto3).read_block(depth + 1)
            field.type, field.type_name, field.name = pb.GROUP, group.name, field.name.lower()
            return field
        _set_type(field, kind)
        _end_of_field(tokens)
        if self._proto3 and label == "optional":
            field.proto3_optional = True
            self._optional.append(field)
        return field

    def _map(self) -> Any:
        tokens = self._tokens
        tokens.expect("<")
        key = tokens.name("the type of the keys")
        tokens.expect(",")
        value = tokens.name("the type of the values")
        tokens.expect(">")
        field = self._message.field.add(label=_LABELS["repeated"], name=tokens.name("the name of a field"))
        tokens.expect("=")
        field.number = tokens.whole_number("the number of a field")
        _end_of_field(tokens)
        entry = self._message.nested_type.add(name=_entry_name(field.name))
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            _set_type(entry.field.add(name=name, number=number, label=_LABELS["optional"]), kind)
        field.type, field.type_name = pb.MESSAGE, entry.name
        return field


def _set_type(field: Any, kind: str) -> None:
    # A name stays as it is written: the pool that the file goes into finds whose it is.
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type_name = kind


def _entry_name(field: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"
