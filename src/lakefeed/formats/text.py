"""The `text` format: the whole payload is one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from lakefeed.formats import Decoder, Format, Rules
from lakefeed.formats.fixed import Columns, FixedDecoder
from lakefeed.formats.refusal import VALUES, Misfit, Misfits, codes, utf8_text

CODES = codes("not_utf8", *VALUES)
"""Every code of a refused payload and what it means, in the order of the checks."""

_MADE = pa.schema([("data", pa.string())])


class TextFormat(Format):
    """UTF-8 text, in the column `data`."""

    type: Literal["text"] = "text"

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> Decoder:
        """A decoder of payloads that are text as they are; an empty payload is an empty text."""
        return FixedDecoder(schema, rules, _MADE, _read)


def _read(payloads: Sequence[bytes]) -> Columns:
    """All payloads in one cast; one by one only if one of them is no text."""
    try:
        return Columns({"data": pa.array(payloads, pa.binary()).cast(pa.string())})
    except pa.ArrowInvalid:
        return _one_by_one(payloads)


def _one_by_one(payloads: Sequence[bytes]) -> Columns:
    texts: list[str | None] = []
    misfits: Misfits = {}
    for index, payload in enumerate(payloads):
        try:
            texts.append(utf8_text(payload))
        except Misfit as misfit:
            misfits[index] = misfit
            texts.append(None)
    return Columns({"data": pa.array(texts, pa.string())}, misfits)
