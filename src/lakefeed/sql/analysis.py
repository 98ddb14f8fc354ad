"""Texts of `select`, `where` and `expect` become expressions, by Spark's own parser and analyzer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakefeed.sql.projection import Otherwise, Projection


def analyze(
    jvm: Any,
    input: pa.Schema,
    select: Sequence[str],
    where: str | None,
    expect: Mapping[str, tuple[str, Otherwise]],
) -> Projection:
    """The projection of a table for the columns of its events.

    `jvm` is Spark's, of a session or of a bare gateway. Raises SqlError, which names the key below the table
    and says why in Spark's own words.
    """
    raise NotImplementedError
