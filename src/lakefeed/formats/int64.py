"""The `int64` format: the payload is one number in eight bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from lakefeed.formats import Decoder, Format, Rules
from lakefeed.formats.fixed import Columns, FixedDecoder
from lakefeed.formats.refusal import Misfit, codes

CODES = codes("bad_length", "out_of_range", "bad_timestamp", "bad_decimal")
"""Every code of a refused payload and what it means, in the order of the checks."""

_MADE = pa.schema([("value", pa.int64())])
_LENGTH = 8


class Int64Format(Format):
    """A signed 64-bit number, big-endian, in the column `value`."""

    type: Literal["int64"] = "int64"

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> Decoder:
        """A decoder of payloads that are eight bytes as they are."""
        return FixedDecoder(schema, rules, _MADE, _read)


def _read(payloads: Sequence[bytes]) -> Columns:
    """The numbers, all at once; zero stands in for a payload of another length."""
    misfits = {
        index: Misfit("bad_length", f"expected {_LENGTH} bytes, got {len(payload)}")
        for index, payload in enumerate(payloads)
        if len(payload) != _LENGTH
    }
    whole = payloads
    if misfits:
        whole = [bytes(_LENGTH) if index in misfits else one for index, one in enumerate(payloads)]
    numbers = np.frombuffer(b"".join(whole), ">i8").astype(np.int64)
    return Columns({"value": pa.array(numbers)}, misfits)
