"""Payloads of one message type become rows of a table: fast where they can be read together."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lakefeed.columns.widening import merge_proposals
from lakefeed.formats import Decoded, Decoder, Rules
from lakefeed.formats.fit.doubt import with_rows
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.fit.rescue import Rescued
from lakefeed.formats.joining import Part, groups, joined
from lakefeed.formats.protobuf.block import read_block
from lakefeed.formats.protobuf.message import Message
from lakefeed.formats.protobuf.strict import StrictReader
from lakefeed.formats.refusal import Misfit, Misfits, no_payload

_Numbers = dict[int, dict[str, list[bytes]]]
"""By the index of a payload: what it holds of fields that the message does not have, by their numbers."""

# A block's arrays still fit into the processor's cache, and its texts into a column.
_MOST_PAYLOADS = 16_384
_MOST_BYTES = 16 * 1024**2


class MessageDecoder(Decoder):
    """Decodes payloads of one message type into one schema, under the rules of its table."""

    def __init__(self, message: Message, schema: pa.Schema, rules: Rules) -> None:
        self._message = message
        self._rules = rules
        self._strict = StrictReader(message)
        self._fitter = Fitter(schema, rules)
        self._strict_numbers = rules.new_column not in ("add", "ignore")

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every payload becomes a row or a refusal; what becomes of one does not depend on the others."""
        indexes = [index for index, payload in enumerate(payloads) if payload is not None]
        refused = {index: no_payload() for index, payload in enumerate(payloads) if payload is None}
        messages = [payloads[index] or b"" for index in indexes]
        return joined(len(payloads), self.read(indexes, messages), refused)

    def read(self, indexes: Sequence[int], payloads: Sequence[bytes]) -> list[Part]:
        """Every payload becomes a row or a refusal; `indexes` are theirs among all of a call."""
        blocks = groups(payloads, _MOST_BYTES, _MOST_PAYLOADS)
        return [(indexes[start:end], self._block(payloads[start:end])) for start, end in blocks]

    def _block(self, payloads: Sequence[bytes]) -> Decoded:
        block = read_block(self._message, list(payloads), self._strict_numbers)
        misfits: Misfits = {}
        numbers: _Numbers = {}
        made = block.values
        if block.doubt.any():
            made = self._decided(payloads, np.flatnonzero(block.doubt).tolist(), made, misfits, numbers)
        if self._rules.new_column == "dead_letter":
            misfits |= {index: self._unexpected(found) for index, found in numbers.items()}
        # Such a field has a number but no name, and so no column.
        rescued: dict[int, Rescued] = {}
        if self._rules.new_column == "rescue":
            rescued = {at: {path: _text(each) for path, each in numbers[at].items()} for at in numbers}
        fitted = self._fitter.fit(made, misfits, rescued=rescued)
        return self._with_numbers(fitted, numbers) if self._rules.new_column == "fail" and numbers else fitted

    def _decided(
        self,
        payloads: Sequence[bytes],
        indexes: list[int],
        made: pa.StructArray,
        misfits: Misfits,
        numbers: _Numbers,
    ) -> pa.StructArray:
        """The block with the rows of the strict path at the indexes that were in doubt."""
        rows: list[dict[str, Any]] = []
        for index in indexes:
            row: dict[str, Any] = {}
            try:
                row, found = self._strict.read(payloads[index])
                if found and self._strict_numbers:
                    numbers[index] = found
            except Misfit as misfit:
                misfits[index] = misfit
            rows.append(row)
        return with_rows(made, indexes, rows)

    def _unexpected(self, found: Mapping[str, Any]) -> Misfit:
        name = self._message.name
        misfit = Misfit("new_column", f"no field of {name} has this number, and `evolve` allows none")
        return misfit.within(next(iter(found)))

    def _with_numbers(self, fitted: Decoded, numbers: _Numbers) -> Decoded:
        """The same, with fields that the message does not have as new columns."""
        refused = {one.index for one in fitted.refused}
        paths = sorted({path for index, found in numbers.items() if index not in refused for path in found})
        if not paths:
            return fitted
        new = pa.schema([(path, pa.binary()) for path in paths])
        return replace(fitted, unknown=merge_proposals(fitted.unknown or pa.schema([]), new))


def _text(values: list[bytes]) -> str:
    """The bytes of a field in base64, in an array if there are several."""
    texts = [b64encode(value).decode() for value in values]
    return orjson.dumps(texts[0] if len(texts) == 1 else texts).decode()
