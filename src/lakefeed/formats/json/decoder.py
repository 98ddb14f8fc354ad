"""The decoder of JSON payloads: a fast path for those that are read together, a strict one for the rest."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakefeed.formats import Decoded, Decoder, Rules
from lakefeed.formats.fit.spellings import spellings_of
from lakefeed.formats.json.block import BlockReader
from lakefeed.formats.json.sieve import Sieve
from lakefeed.formats.json.strict import StrictReader


class JsonDecoder(Decoder):
    """Decodes JSON payloads. Remembers between calls only what makes it faster."""

    def __init__(self, schema: pa.Schema, rules: Rules) -> None:
        self._rules = rules
        spellings = spellings_of(schema, rules)
        self._blocks = BlockReader(schema, rules, spellings)
        self._strict = StrictReader(schema, rules, spellings)

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every payload becomes a row or a refusal; what becomes of one does not depend on the others."""
        return Sieve(self._blocks, self._strict, self._rules, payloads).decoded()
