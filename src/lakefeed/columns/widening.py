"""The narrowest type that holds the values of two others, and how proposals for new columns are merged."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import pyarrow as pa

from lakefeed.columns.column_types import JSON, LARGEST_PRECISION, TIMESTAMP, naming, type_text
from lakefeed.columns.evidence import Evidence, evidence_of, pruned

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


def holds_all(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether a column of type `a` holds every value of type `b`: the same type, or a wider number."""
    if type_text(a) == type_text(b):
        return True
    return _is_number(a) and _is_number(b) and type_text(widen(a, b)) == type_text(a)


def wider(have: pa.DataType, seen: pa.Field) -> pa.DataType:
    """The type that a column of the type `have` needs for the values of a field; `have` where none is wider.

    Numbers and dates only, also inside structs, lists and maps: no column becomes text. A `double` holds the
    values of a `long` column only up to 2^53, which the rows of the table decide.
    """
    return _wider(have, seen.type, evidence_of(seen))


def under_names(names: pa.DataType, kind: pa.DataType) -> pa.DataType:
    """A type with the names of the fields of another. Raises ValueError where their structures differ."""
    types = pa.types
    if types.is_struct(names) and types.is_struct(kind):
        pairs = zip(names, kind, strict=True)
        return pa.struct([one.with_type(under_names(one.type, other.type)) for one, other in pairs])
    if types.is_list(names) and types.is_list(kind):
        return pa.list_(names.value_field.with_type(under_names(names.value_type, kind.value_type)))
    if types.is_map(names) and types.is_map(kind):
        return pa.map_(
            names.key_type, names.item_field.with_type(under_names(names.item_type, kind.item_type))
        )
    return kind


def _wider(have: pa.DataType, seen: pa.DataType, evidence: Evidence | None) -> pa.DataType:
    types = pa.types
    if types.is_struct(have):
        return pa.struct([one.with_type(_wider_member(one, seen, evidence)) for one in have])
    if types.is_list(have):
        inner = seen.value_type if types.is_list(seen) else pa.null()
        return pa.list_(have.value_field.with_type(_wider(have.value_type, inner, _inside(evidence))))
    if types.is_map(have):
        inner = seen.item_type if types.is_map(seen) else pa.null()
        item = have.item_field.with_type(_wider(have.item_type, inner, _inside(evidence)))
        return pa.map_(have.key_type, item)
    if evidence is not None:
        seen = _seen(evidence, is_number=_is_number(have))
    if types.is_date(have) and types.is_timestamp(seen):
        return TIMESTAMP
    return _wider_number(have, seen) if _is_number(have) and _is_number(seen) else have


def _wider_member(one: pa.Field, seen: pa.DataType, evidence: Evidence | None) -> pa.DataType:
    if evidence is not None:
        return _wider(one.type, pa.null(), evidence.fields.get(one.name, Evidence()))
    at = seen.get_field_index(one.name) if pa.types.is_struct(seen) else -1
    return one.type if at < 0 else _wider(one.type, seen.field(at).type, None)


def _inside(evidence: Evidence | None) -> Evidence | None:
    return None if evidence is None else evidence.inside or Evidence()


def _seen(evidence: Evidence, *, is_number: bool) -> pa.DataType:
    """The type of the numbers, or of the times, among the values, whatever most of them are."""
    kinds = ("long", "decimal", "double") if is_number else ("timestamp",)
    counts = {kind: count for kind in kinds if (count := evidence.counts.get(kind))}
    return Evidence(counts).type() if counts else pa.null()


def _wider_number(have: pa.DataType, seen: pa.DataType) -> pa.DataType:
    both = widen(have, seen)
    # A float does not hold the digits of a decimal.
    is_cut = pa.types.is_floating(both) and (pa.types.is_decimal(have) or pa.types.is_decimal(seen))
    return have if is_cut else both


def merge_proposals(a: pa.Schema, b: pa.Schema) -> pa.Schema:
    """One proposal for the new columns of two: types are widened, columns keep the order of `a`, then of `b`.

    Columns that carry their evidence get the type that follows from the evidence of both. Names that differ
    only by case stay apart: `lakefeed.columns.naming` decides, once all events have been seen.
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
    return list(merged.values())


def _widen_field(a: pa.Field, b: pa.Field) -> pa.Field:
    evidence = evidence_of(a), evidence_of(b)
    names = {**naming(b), **naming(a)}
    if evidence[0] is not None and evidence[1] is not None:
        found = pruned([evidence[0].with_(evidence[1]).to_field(a.name)])[0]
        return found.with_metadata({**found.metadata, **names})
    return pa.field(a.name, widen(a.type, b.type), a.nullable or b.nullable, names or None)


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
