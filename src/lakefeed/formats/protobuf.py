"""The `protobuf` format: one message per payload, its fields are the columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, PrivateAttr

from lakefeed.formats import Decoded, Decoder, Format, Rules
from lakefeed.formats.fitting import decoded
from lakefeed.formats.protobuf_files import Files, read_files
from lakefeed.formats.protobuf_reader import TOGETHER, MessageReader
from lakefeed.formats.refusal import codes, no_payload
from lakefeed.pipeline.locations import LocalPath

CODES = codes("bad_protobuf", "not_utf8", "out_of_range", "bad_timestamp", "bad_date", "bad_decimal")
"""Every code of a refused payload and what it means, in the order of the checks."""


class ProtobufFormat(Format):
    """Protobuf messages, one per payload."""

    type: Literal["protobuf"] = "protobuf"
    descriptor: LocalPath = Field(
        description="The file with the message: a descriptor set as `protoc --include_imports "
        "--descriptor_set_out` writes it, or the `.proto` source.",
        examples=["events.desc"],
    )
    message: str = Field(
        description="The full name of the message.",
        examples=["shop.v1.Click"],
    )
    _files: bytes = PrivateAttr(default=b"")

    def model_post_init(self, context: Any, /) -> None:
        """Read the file here, on the driver: workers may not have it."""
        self._files = read_files(Path(self.descriptor))
        Files(self._files).message(self.message)

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> ProtobufDecoder:
        """A decoder of payloads that are messages as they are."""
        return ProtobufDecoder(MessageReader(Files(self._files).message(self.message), schema, rules))


class ProtobufDecoder(Decoder):
    """Decodes payloads of one message type."""

    def __init__(self, reader: MessageReader) -> None:
        self._reader = reader

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every payload becomes a row or a refusal; what becomes of one does not depend on the others."""
        indexes = [index for index, payload in enumerate(payloads) if payload is not None]
        refused = {index: no_payload() for index, payload in enumerate(payloads) if payload is None}
        parts = []
        for start in range(0, max(len(indexes), 1), TOGETHER):
            some = indexes[start : start + TOGETHER]
            parts.append((some, self._reader.read([payloads[index] or b"" for index in some])))
        return decoded(len(payloads), parts, refused)
