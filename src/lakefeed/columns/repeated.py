"""The same value in each row of a column."""

from __future__ import annotations

import pyarrow as pa


def repeated(value: pa.Scalar, count: int) -> pa.Array:
    """`pa.repeat`, which raises ArrowInvalid for nested values and no rows."""
    return pa.repeat(value, max(count, 1)).slice(0, count)
