"""The `bytes` format: the payload as it is, whatever it holds."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from lakefeed.formats import Decoder, Format, Rules
from lakefeed.formats.fixed import Columns, FixedDecoder
from lakefeed.formats.refusal import VALUES, codes

CODES = codes(*VALUES)
"""Every code of a refused payload and what it means, in the order of the checks."""


class BytesFormat(Format):
    """Any bytes, as base64 in the column `data`, and their number in `size`."""

    type: Literal["bytes"] = "bytes"

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> Decoder:
        """A decoder of any payloads; a `data` that is declared as binary gets the bytes as they are."""
        raw = "data" in schema.names and pa.types.is_binary(schema.field("data").type)
        made = pa.schema([("data", pa.binary() if raw else pa.string()), ("size", pa.int64())])
        return FixedDecoder(schema, rules, made, _read_bytes if raw else _read_base64)


def _read_bytes(payloads: Sequence[bytes]) -> Columns:
    return _columns(pa.array(payloads, pa.binary()), payloads)


def _read_base64(payloads: Sequence[bytes]) -> Columns:
    return _columns(pa.array(map(b64encode, payloads), pa.string()), payloads)


def _columns(data: pa.Array, payloads: Sequence[bytes]) -> Columns:
    return Columns({"data": data, "size": pa.array(map(len, payloads), pa.int64())})
