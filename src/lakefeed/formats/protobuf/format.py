"""The `protobuf` format: one message per payload, its fields are the columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, PrivateAttr

from lakefeed.formats import Decoder, Format, Rules
from lakefeed.formats.protobuf.proto.files import Files, read_files
from lakefeed.formats.protobuf.reader import MessageDecoder
from lakefeed.formats.protobuf.registry import RegistryDecoder
from lakefeed.formats.refusal import FRAMED, VALUES, codes
from lakefeed.pipeline.options.paths import LocalPath
from lakefeed.pipeline.options.registry import RegistryField

CODES = codes(*FRAMED, "too_deep", "other_message", "bad_protobuf", "not_utf8", *VALUES)
"""Every code of a refused payload and what it means, in the order of the checks."""


class ProtobufFormat(Format):
    """Protobuf messages, one per payload."""

    type: Literal["protobuf"] = "protobuf"
    descriptor: LocalPath | None = Field(
        default=None,
        description="The file with the message: a descriptor set as `protoc --include_imports "
        "--descriptor_set_out` writes it, or the `.proto` source. Needs `message`.",
        examples=["events.desc"],
    )
    message: str | None = Field(
        default=None,
        description="The full name of the message. With a `registry`, other messages are refused; left out, "
        "each payload names its own message.",
        examples=["shop.v1.Click"],
    )
    registry: RegistryField | None = Field(
        default=None,
        description="The schema registry, instead of `descriptor`: payloads are in Confluent's wire format, "
        "and each names its schema. A mapping, or its URL alone.",
        examples=["http://localhost:8081"],
    )
    _files: bytes = PrivateAttr(default=b"")

    def model_post_init(self, context: Any, /) -> None:
        """Read the file here, on the driver: workers may not have it."""
        if (self.descriptor is None) == (self.registry is None):
            raise ValueError("expected either `descriptor` or `registry`")
        if self.descriptor is not None:
            if self.message is None:
                raise ValueError("descriptor needs `message`, the full name of the message in it")
            self._files = read_files(Path(self.descriptor))
            Files(self._files).message(self.message)

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> Decoder:
        """A decoder of payloads that are messages as they are."""
        if self.registry is not None:
            return RegistryDecoder(self.registry, self.message, schema, rules)
        assert self.message is not None
        return MessageDecoder(Files(self._files).message(self.message), schema, rules)
