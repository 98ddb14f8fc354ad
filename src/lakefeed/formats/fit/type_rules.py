"""What the rules say of types: the numbers that a type takes, and which types are of one kind."""

from __future__ import annotations

import pyarrow as pa

INT64 = (-(2**63), 2**63 - 1)
RANGES = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): INT64,
    pa.uint8(): (0, 2**8 - 1),
    pa.uint16(): (0, 2**16 - 1),
    pa.uint32(): (0, 2**32 - 1),
    pa.uint64(): (0, 2**63 - 1),
}
"""What an integer column takes: of the unsigned 64 bits only those that the table's signed type holds."""

MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}
"""How many of them are in one unit of a timestamp; nanoseconds are divided instead."""


def is_epoch(declared: pa.DataType) -> bool:
    """Whether this is a `timestamp(unit)`: a number in the payload."""
    return bool(pa.types.is_timestamp(declared) and declared.tz is None)


def is_text(kind: pa.DataType) -> bool:
    """Whether this is text, also as the names of an enum."""
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(text) or pa.types.is_large_string(text))


def is_binary(kind: pa.DataType) -> bool:
    """Whether this is binary, also of a fixed size."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))
