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

EXACT_DOUBLE = 2**53 - 1
"""Up to here a double is one whole number; beyond, others may have been rounded to it."""

MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}
"""How many of them are in one unit of a timestamp; nanoseconds are divided instead."""


def is_epoch(declared: pa.DataType) -> bool:
    """Whether this is a `timestamp(unit)`: a number in the payload."""
    return bool(pa.types.is_timestamp(declared) and declared.tz is None)


def is_text(kind: pa.DataType) -> bool:
    """Whether this is text, also as the names of an enum."""
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(text) or pa.types.is_large_string(text))


def refused_keys(made: pa.DataType, known: pa.DataType | None, adds: bool) -> pa.DataType | None:
    """The type of map keys that do not go into a column; None where all do.

    `known` is the type of the column. A new one, which has none, takes text alone, as nothing has said that
    other keys may become text; they do in a column that is declared with keys of text.
    """
    types = pa.types
    if types.is_map(made) and (known is None or types.is_map(known)):
        if (adds or known) and not is_text(made.key_type):
            has_text = not (types.is_nested(made.key_type) or is_binary(made.key_type))
            if known is None or not has_text:
                return made.key_type
        return refused_keys(made.item_type, known and known.item_type, adds)
    if types.is_list(made) and (known is None or types.is_list(known)):
        return refused_keys(made.value_type, known and known.value_type, adds)
    if types.is_struct(made) and (known is None or types.is_struct(known)):
        types_of = {field.name: field.type for field in known or ()}
        inside = (refused_keys(field.type, types_of.get(field.name), adds) for field in made)
        return next((key for key in inside if key is not None), None)
    return None


def is_binary(kind: pa.DataType) -> bool:
    """Whether this is binary, also of a fixed size."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))
