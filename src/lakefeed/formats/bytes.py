"""The `bytes` format: the payload as it is, whatever it holds."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from lakefeed.formats import Format, Rules
from lakefeed.formats.fixed import Columns, FixedDecoder
from lakefeed.formats.refusal import codes

CODES = codes("out_of_range", "bad_timestamp", "bad_date", "bad_decimal")
"""Every code of a refused payload and what it means, in the order of the checks."""


class BytesFormat(Format):
    """Any bytes, as base64 in the column `data`, and their number in `size`."""

    type: Literal["bytes"] = "bytes"

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> BytesDecoder:
        """A decoder of payloads whose bytes are wanted as they are."""
        return BytesDecoder(schema, rules)


class BytesDecoder(FixedDecoder):
    """Decodes whatever there is; a `data` that is declared as binary gets the bytes as they are."""

    def __init__(self, schema: pa.Schema, rules: Rules) -> None:
        self._raw = "data" in schema.names and pa.types.is_binary(schema.field("data").type)
        kind = pa.binary() if self._raw else pa.string()
        super().__init__(schema, pa.schema([("data", kind), ("size", pa.int64())]), rules)

    def read(self, payloads: Sequence[bytes]) -> Columns:
        """The bytes and their number."""
        if self._raw:
            data = pa.array(payloads, pa.binary())
        else:
            data = pa.array(map(b64encode, payloads), pa.string())
        return Columns({"data": data, "size": pa.array(map(len, payloads), pa.int64())})
