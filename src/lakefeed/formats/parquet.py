"""The `parquet` format: files that have columns already, so that nothing is decoded."""

from __future__ import annotations

from typing import ClassVar, Literal

import pyarrow as pa

from lakefeed.formats import Decoder, Format, Rules
from lakefeed.formats.json.decoder import JsonDecoder
from lakefeed.formats.json.format import CODES as JSON_CODES

CODES = {code: meaning for code, meaning in JSON_CODES.items() if code != "bad_transform"}
"""Every code of a refused row and what it means, in the order of the checks."""


class ParquetFormat(Format):
    """Parquet files, whose columns meet those of the table; only for sources of files."""

    of_files: ClassVar[bool] = True
    type: Literal["parquet"] = "parquet"

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> Decoder:
        """A decoder of dead letters, which hold their rows as JSON."""
        return JsonDecoder(schema, rules)
