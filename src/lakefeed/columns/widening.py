"""The narrowest type that holds the values of two others, and how proposals for new columns are merged."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import pyarrow as pa

from lakefeed.columns.column_types import JSON, LARGEST_PRECISION
from lakefeed.columns.evidence import evidence_of, one_per_spelling, pruned

INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""How many digits a signed integer of so many bits may have."""
_NEXT_SIGNED = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.int64()}


def widen(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type of a column in which some values were seen as `a` and others as `b`.

    Commutative (but for the order of struct fields) and associative, so that neither the order of events nor
    their split into tasks matters. Kinds that do not go together become a string, numbers that do not fit
    together a double. The null type is no evidence and gives way to any other.
    """
    if a.equals(b):
        return a
    if pa.types.is_null(a):
        return b
    if pa.types.is_null(b):
        return a
    if _is_number(a) and _is_number(b):
        return _widen_numbers(a, b)
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(_widen_field(a.value_field, b.value_field))
    if pa.types.is_map(a) and pa.types.is_map(b) and a.key_type == b.key_type:
        return pa.map_(a.key_type, _widen_field(a.item_field, b.item_field))
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return pa.struct(merge_fields(a, b))
    return JSON if JSON in (a, b) else pa.string()


def merge_proposals(a: pa.Schema, b: pa.Schema) -> pa.Schema:
    """One proposal for the new columns of two: types are widened, columns keep the order of `a`, then of `b`.

    Columns that carry their evidence get the type that follows from the evidence of both.

    Of names that differ only by case one is kept, the first in the order of code points: Delta holds one of
    them. Events with the other spelling are refused once the column is there.
    """
    return pa.schema(merge_fields(a, b))


def merged_proposals(*proposals: pa.Schema | None) -> pa.Schema | None:
    """Those of the proposals that there are, as one; None where there is none."""
    found = [one for one in proposals if one is not None]
    return reduce(merge_proposals, found) if found else None


def merge_fields(a: Iterable[pa.Field], b: Iterable[pa.Field]) -> list[pa.Field]:
    """The fields of both, in order of appearance, by the rules of `merge_proposals`."""
    merged: dict[str, pa.Field] = {}
    for field in (*a, *b):
        found = merged.get(field.name)
        merged[field.name] = _widen_field(found, field) if found else field
    return one_per_spelling(merged.values())


def _widen_field(a: pa.Field, b: pa.Field) -> pa.Field:
    evidence = evidence_of(a), evidence_of(b)
    if evidence[0] is not None and evidence[1] is not None:
        return pruned([evidence[0].with_(evidence[1]).to_field(a.name)])[0]
    return pa.field(a.name, widen(a.type, b.type), a.nullable or b.nullable)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _widen_numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(a) or pa.types.is_floating(b):
        return pa.float64()
    if pa.types.is_decimal(a) or pa.types.is_decimal(b):
        return _widen_decimals(a, b)
    signed_a, signed_b = _signed(a), _signed(b)
    return signed_a if signed_a.bit_width >= signed_b.bit_width else signed_b


def _widen_decimals(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    (digits_a, scale_a), (digits_b, scale_b) = _digits(a), _digits(b)
    scale = max(scale_a, scale_b)
    precision = max(digits_a, digits_b) + scale
    return pa.decimal128(precision, scale) if precision <= LARGEST_PRECISION else pa.float64()


def _digits(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return INTEGER_DIGITS[_signed(kind).bit_width], 0


def _signed(kind: pa.DataType) -> pa.DataType:
    return _NEXT_SIGNED[kind.bit_width] if pa.types.is_unsigned_integer(kind) else kind
