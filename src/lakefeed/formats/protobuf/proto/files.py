"""Descriptors of `.proto` files: from a descriptor set, from source text, and what they import."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.formats.protobuf.message import Message, TooDeep, message_of
from lakefeed.formats.protobuf.proto.source import file_descriptor
from lakefeed.formats.protobuf.proto.tokens import ProtoSyntaxError
from lakefeed.text import did_you_mean

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

SOURCE = ".proto"
# Registries know this file without a reference to it.
_BUILT_IN = {
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type; '
    "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
}

Find = Callable[[str], "FileDescriptorProto | None"]
"""Takes the name of an imported file; returns None for one that is not there."""


class BadDescriptor(ValueError):
    """Files that make no message; the text says what is wrong and what to do."""


def read_files(path: Path) -> bytes:
    """A descriptor set, or source text with what it imports from folders around it, as a descriptor set.

    For the driver: workers may have no such file. Raises BadDescriptor.
    """
    content = _content(path)
    if path.suffix == SOURCE:
        return _packed(_source(path.name, content), lambda name: _around(path.parent, name))
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        if FileDescriptorSet.FromString(content).file:
            return content
    except DecodeError:
        pass
    raise BadDescriptor(
        f"{path} is no descriptor set; make one with protoc --include_imports --descriptor_set_out, "
        f"or give the {SOURCE} file"
    )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadDescriptor(f"{path} cannot be read: {error.strerror}") from None


def _source(name: str, content: bytes) -> FileDescriptorProto:
    try:
        return file_descriptor(name, content.decode())
    except UnicodeDecodeError:
        raise BadDescriptor(f"{name} is not UTF-8 text") from None
    except ProtoSyntaxError as error:
        raise BadDescriptor(f"{name}: {error}") from None


def _around(folder: Path, name: str) -> FileDescriptorProto | None:
    # An import is named from the root of the sources, which is some folder above the file.
    for root in (folder, *folder.parents):
        if (root / name).is_file():
            return _source(name, _content(root / name))
    return None


def _packed(file: FileDescriptorProto, find: Find) -> bytes:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    found: dict[str, Any] = {}

    def add(each: FileDescriptorProto) -> None:
        found[each.name] = each
        for name in each.dependency:
            imported = None if name in found else find(name)
            if imported is not None:
                add(imported)

    add(file)
    packed: bytes = FileDescriptorSet(file=reversed(found.values())).SerializeToString()
    return packed


def registered_files(name: str, text: str, imported: Mapping[str, str]) -> bytes:
    """A file that a registry holds and those that it imports, as a descriptor set. Raises BadDescriptor."""

    def find(other: str) -> FileDescriptorProto | None:
        return _registered(other, imported[other]) if other in imported else None

    return _packed(_registered(name, text), find)


def _registered(name: str, text: str) -> FileDescriptorProto:
    """Source, or a descriptor in base64: some clients register that, and some registries leave it so."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (DecodeError, ValueError):
        # Half a surrogate pair, which JSON can hold, is no text; the error names what stands for it.
        return _source(name, text.encode(errors="surrogatepass"))
    file.name = name
    return file


class Files:
    """The messages of a descriptor set. Imports that are not there count as empty files."""

    def __init__(self, packed: bytes) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.descriptor_pool import DescriptorPool

        self._files = {file.name: file for file in FileDescriptorSet.FromString(packed).file}
        self._pool = DescriptorPool()
        self._missing: list[str] = []
        self._added: set[str] = set()
        for name in self._files:
            self._add(name)

    def message(self, name: str) -> Message:
        """How the message of this full name becomes columns. Raises BadDescriptor."""
        try:
            return message_of(self.descriptor(name))
        except TooDeep as error:
            raise BadDescriptor(str(error)) from None

    def descriptor(self, name: str) -> Descriptor:
        """The message of this full name. Raises BadDescriptor."""
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            known = list(self._names())
            near = did_you_mean(name, known) or f"; it has {', '.join(known[:5]) or 'none'}"
            raise BadDescriptor(f"no message {name}{near}") from None

    def names_at(self, file: str, indexes: Sequence[int]) -> list[str]:
        """The messages that may be meant by a path in a file: an index for each level, from the outermost.

        Some clients count the entries of maps, which are messages too, and some do not: there may be two.
        """
        top = list(self._pool.FindFileByName(file).message_types_by_name.values())
        found = [_message_at(top, indexes, counted) for counted in (True, False)]
        return list(dict.fromkeys(each.full_name for each in found if each and not _is_entry(each)))

    def _names(self) -> Iterable[str]:
        for name in self._files:
            for message in self._pool.FindFileByName(name).message_types_by_name.values():
                yield from _with_inner(message)

    def _add(self, name: str) -> None:
        if name in self._added:
            return
        self._added.add(name)
        file = self._files.get(name) or _well_known(name)
        if file is None:
            from google.protobuf.descriptor_pb2 import FileDescriptorProto

            self._missing.append(name)
            file = FileDescriptorProto(name=name)
        for imported in file.dependency:
            self._add(imported)
        try:
            self._pool.Add(file)
        except TypeError as error:
            missing = f"; imports that are not there: {', '.join(self._missing)}" if self._missing else ""
            raise BadDescriptor(f"{name}: {_reason(error)}{missing}") from None


def _message_at(inside: list[Any], indexes: Sequence[int], entries: bool) -> Any:
    found = None
    for index in indexes:
        if not entries:
            inside = [each for each in inside if not _is_entry(each)]
        if not 0 <= index < len(inside):
            return None
        found = inside[index]
        inside = list(found.nested_types)
    return found


def _is_entry(message: Descriptor) -> bool:
    return bool(message.GetOptions().map_entry)


def _with_inner(message: Descriptor) -> Iterable[str]:
    if not _is_entry(message):
        yield message.full_name
        for inner in message.nested_types:
            yield from _with_inner(inner)


def _reason(error: TypeError) -> str:
    return str(error).partition("descriptor pool: ")[2] or str(error)


def _well_known(name: str) -> FileDescriptorProto | None:
    """Files of Google that its Python packages bring along, and the one that registries take for granted."""
    if name in _BUILT_IN:
        return file_descriptor(name, _BUILT_IN[name])
    if not name.startswith("google/"):
        return None
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    try:
        module: Any = import_module(name.removesuffix(SOURCE).replace("/", ".") + "_pb2")
    except ImportError:
        return None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
