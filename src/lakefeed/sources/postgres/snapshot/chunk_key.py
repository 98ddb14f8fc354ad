"""What chunks of a snapshot are ranges of: an integer of the key, or else a hash of the whole key.

A position is a number, and the server and a worker must agree on the order of keys, whatever collation a
column has. A hash of the key's text is a number, and both compute the same. No index has it, so the server
reads the whole table for each chunk of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from lakefeed.sources.postgres.replication.pgoutput import Numbers

HASHES = 1 << 60
"""Hashes are from 0 up to and without this."""
INTEGER_OIDS = (21, 23, 20)
"""The types of a column that is a number by itself: `int2`, `int4`, `int8`."""
_DIGITS = 15
_BETWEEN = "\x1f"


@dataclass(frozen=True)
class ChunkKey:
    """Columns that give a row its number: one that is an integer, or several that are hashed together."""

    columns: tuple[str, ...]
    is_hashed: bool = False

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> ChunkKey:
        """From a task's payload."""
        return cls(tuple(payload["columns"]), payload["is_hashed"])

    def expression(self) -> str:
        """The number of a row in SQL."""
        names = ", ".join(sql.Identifier(one).as_string(None) for one in self.columns)
        if not self.is_hashed:
            return names
        # By concat_ws values have the text of the stream: that of a cast to text may be another.
        text = f"convert_to(concat_ws(E'\\x1f', {names}), 'UTF8')"
        return f"('x' || left(md5({text}), {_DIGITS}))::bit({4 * _DIGITS})::bigint"

    def numbers(self, texts: Sequence[pa.Array]) -> Numbers:
        """The numbers of rows whose columns have these texts; of a row without a key, any."""
        if not self.is_hashed:
            return pc.fill_null(texts[0].cast(pa.int64()), 0).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
        filled = [pc.fill_null(one, "").to_pylist() for one in texts]
        joined = map(_BETWEEN.join, zip(*filled, strict=True))
        found = (int(md5(one.encode()).hexdigest()[:_DIGITS], 16) for one in joined)
        return np.fromiter(found, np.int64, len(texts[0]))
