"""Whether SQL makes text of a number or a time: in a wider type, the same value has other text."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from lakefeed.sql.expression import Call, Column, Expression

_HASHES = frozenset(["Murmur3Hash", "XxHash64", "HiveHash"])
"""Functions whose result depends on the type of a value, and not on the value alone."""
_PARTS = frozenset(["GetStructField", "GetArrayItem", "GetArrayStructFields", "GetMapValue", "ElementAt"])
"""Functions that return a part of a value as it is."""
_VARIABLE = "NamedLambdaVariable"


def respells(expression: Expression, columns: Collection[str]) -> bool:
    """Whether text, or a hash, is made of these columns, so that wider types would change it.

    `concat('k', v)` gives `k10` for a `long` and `k10.0` for the same number in a `double`.
    """
    return not expression.columns().isdisjoint(columns) and _walk(expression, columns)[1]


def _walk(expression: Expression, columns: Collection[str]) -> tuple[bool, bool]:
    """Whether the value has a wider type, and whether text is made of one that has."""
    if isinstance(expression, Column):
        return expression.name in columns, False
    if not isinstance(expression, Call):
        return False, False
    if expression.function == _VARIABLE:
        # An element of any array or map of the expression.
        return not _keeps(expression.type), False
    inside = [_walk(one, columns) for one in expression.given]
    if any(is_respelled for _, is_respelled in inside):
        return True, True
    if not any(is_wider for is_wider, _ in inside):
        return False, False
    if expression.function in _HASHES:
        return True, True
    if _is_text(expression.type):
        return False, expression.function not in _PARTS
    return not _keeps(expression.type), False


def _keeps(kind: pa.DataType) -> bool:
    """Whether a type is that of a result which is the same whatever type its number or time has."""
    types = pa.types
    return _is_text(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_date(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
