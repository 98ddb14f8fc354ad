"""The `json` format: one JSON object per payload, its keys are the columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from lakefeed.formats import Decoder, Format, Rules
from lakefeed.formats.refusal import FRAMED, VALUES, Misfits, codes
from lakefeed.pipeline.options.registry import RegistryField

CODES = codes(
    *FRAMED,
    "empty_payload",
    "not_utf8",
    "bad_json",
    "not_an_object",
    "duplicate_key",
    "too_deep",
    "bad_transform",
    "bad_base64",
    *VALUES,
)
"""Every code of a refused payload and what it means, in the order of the checks."""


class JsonFormat(Format):
    """JSON objects, one per payload."""

    type: Literal["json"] = "json"
    registry: RegistryField | None = Field(
        default=None,
        description="The schema registry of payloads in Confluent's wire format: its URL, or a mapping. "
        "Left out: payloads are plain JSON.",
        examples=["http://localhost:8081"],
    )

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> Decoder:
        """A decoder of payloads that are JSON as they are, or in frames."""
        # Arrow's functions take longer to import than all else that checking a pipeline file needs.
        from lakefeed.formats.json.decoder import JsonDecoder
        from lakefeed.formats.registry.framing import UnframingDecoder

        decoder = JsonDecoder(schema, rules)
        return UnframingDecoder(decoder, self.registry, "JSON") if self.registry else decoder

    has_objects: ClassVar[bool] = True

    def plain_objects(self, payloads: Sequence[bytes | None]) -> tuple[list[bytes | None], Misfits]:
        """The payloads as they are, or what is in their frames."""
        if self.registry is None:
            return list(payloads), {}
        from lakefeed.formats.registry.framing import unframed

        return unframed(payloads, self.registry, "JSON")
