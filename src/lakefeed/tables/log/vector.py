"""Deletion vectors: which rows of a data file are deleted though they are still in it.

A vector is named by the `add` of its file. Its bitmap lies in a file of its own, which may hold those of many
data files, or in the log itself where others have put it. See the Delta protocol, "Deletion Vectors".
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow.fs as pafs

from lakefeed.errors import TableError
from lakefeed.stores import local_folder, located, store_errors, store_path, sync
from lakefeed.tables.log.roaring import NotABitmap, Positions, decode, encode

FEATURE = "deletionVectors"
PROPERTY = "delta.enableDeletionVectors"
_INLINE, _RELATIVE, _ABSOLUTE = "i", "u", "p"
_VERSION = b"\x01"
_UUID_TEXT = 20
"""Letters of a UUID in base 85."""

# Python has base 85 with the letters of git; the protocol has those of ZeroMQ.
_GIT = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_GIT, _Z85), bytes.maketrans(_Z85, _GIT)


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The vector of a data file as the log has it."""

    storage: str
    """`u` for a file in the table, `p` for one anywhere, `i` for the bitmap itself."""
    text: str
    """The name of the file, its path, or the bitmap."""
    offset: int | None
    size: int
    cardinality: int
    """How many rows are deleted."""

    @classmethod
    def of(cls, action: Mapping[str, Any] | None) -> DeletionVector | None:
        """The vector that an `add` or `remove` names; None where it has none."""
        if not action or action.get("storageType") is None:
            return None
        return cls(
            action["storageType"],
            action["pathOrInlineDv"],
            action.get("offset"),
            action.get("sizeInBytes") or 0,
            action["cardinality"],
        )

    @property
    def action(self) -> dict[str, Any]:
        """As an `add` or `remove` names it."""
        at = {} if self.offset is None else {"offset": self.offset}
        return {
            "storageType": self.storage,
            "pathOrInlineDv": self.text,
            **at,
            "sizeInBytes": self.size,
            "cardinality": self.cardinality,
        }

    @property
    def path(self) -> str | None:
        """The file that holds it, within the table or anywhere; None where the log holds it."""
        if self.storage == _INLINE:
            return None
        if self.storage == _ABSOLUTE:
            return unquote(self.text)
        folder, name = self.text[:-_UUID_TEXT], self.text[-_UUID_TEXT:]
        file = f"deletion_vector_{uuid.UUID(bytes=_from_z85(name))}.bin"
        return f"{folder}/{file}" if folder else file


def read_vector(store: pafs.FileSystem, vector: DeletionVector) -> Positions:
    """The rows that a vector deletes. Raises TableError where it is missing or damaged."""
    with store_errors(store_path(store)):
        try:
            data = _from_z85(vector.text) if vector.storage == _INLINE else _read(store, vector)
            found = decode(data[: vector.size])
        except FileNotFoundError as error:
            raise _unreadable(store, vector, "it is not there") from error
        except (ValueError, struct.error) as error:
            raise _unreadable(store, vector, str(error)) from error
    if len(found) != vector.cardinality:
        reason = f"it has {len(found)} rows, the log says {vector.cardinality}"
        raise _unreadable(store, vector, reason)
    return found


def write_vectors(
    store: pafs.FileSystem, bitmaps: Sequence[Positions], *, durable: bool = False
) -> list[DeletionVector]:
    """Store bitmaps in one new file of the table. A `durable` one outlives a power cut before this returns.

    None in the log, which the protocol allows for small ones: Spark's VACUUM fails on a table with one.
    """
    found: list[DeletionVector] = []
    content = bytearray(_VERSION)
    name = uuid.uuid4()
    for positions in bitmaps:
        data = encode(positions)
        found.append(DeletionVector(_RELATIVE, _to_z85(name.bytes), len(content), len(data), len(positions)))
        content += struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    if found:
        _write(store, f"deletion_vector_{name}.bin", bytes(content), durable)
    return found


def union(positions: Positions, more: Positions) -> Positions:
    """The rows of either. Few are added to many, again and again: nothing is sorted anew."""
    new = more[~among(more, positions)]
    return np.insert(positions, np.searchsorted(positions, new), new)


def among(rows: Positions, positions: Positions) -> npt.NDArray[np.bool_]:
    """Which of some rows, which ascend, are among these positions."""
    if not len(positions):
        return np.zeros(len(rows), np.bool_)
    found: npt.NDArray[np.bool_] = positions[np.searchsorted(positions, rows) % len(positions)] == rows
    return found


def _write(store: pafs.FileSystem, path: str, content: bytes, durable: bool) -> None:
    with store_errors(store_path(store)):
        with store.open_output_stream(path) as stream:
            stream.write(content)
        folder = local_folder(store)
        if durable and folder is not None:
            sync([folder / path])
            sync([folder])


def _read(store: pafs.FileSystem, vector: DeletionVector) -> bytes:
    store, path = located(store, vector.path or "")
    with store.open_input_file(path) as stream:
        stream.seek(vector.offset or 0)
        block = stream.read(vector.size + 8)
    (size,) = struct.unpack_from(">I", block)
    (checksum,) = struct.unpack_from(">I", block, vector.size + 4)
    if size != vector.size:
        raise NotABitmap(f"it has {size} bytes, the log says {vector.size}")
    data = bytes(block[4 : 4 + size])
    if zlib.crc32(data) != checksum:
        raise NotABitmap("its checksum is wrong")
    return data


def _unreadable(store: pafs.FileSystem, vector: DeletionVector, reason: str) -> TableError:
    return TableError(
        f"{store_path(store)}: the deletion vector {vector.path or 'in the log'} cannot be read: {reason}.\n"
        "Bring it back from a backup, or restore the table to a version without it."
    )


def _to_z85(data: bytes) -> str:
    return base64.b85encode(data).translate(_TO_Z85).decode()


def _from_z85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_FROM_Z85))
