"""One value, as JSON has it, becomes one value of a column, or a precise refusal, in every format."""

from __future__ import annotations

import binascii
from collections.abc import Callable
from functools import partial
from math import isfinite
from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import JSON, type_text
from lakefeed.formats.fit import decimals, times
from lakefeed.formats.fit.json_text import exact_json
from lakefeed.formats.fit.objects import each
from lakefeed.formats.fit.type_rules import EXACT_DOUBLE, INT64, MICROSECONDS, RANGES, is_epoch
from lakefeed.formats.refusal import TYPE_CHANGES, Misfit, Number, shown

Convert = Callable[[Any], Any]
"""Takes a parsed value, returns what `pyarrow.array` takes for the stored type, raises Misfit."""

_LONGEST_INTEGER = 25
_LONGEST_WHOLE = pa.decimal128(38, 0)
_EPOCH_DIGITS = {"s": 11, "ms": 14, "us": 17}


def converter(field: pa.Field) -> Convert:
    """The function that converts values of one column, null and missing ones included."""
    convert, nullable = _convert(field.type), field.nullable
    expected = f"{type_text(field.type)} not null"

    def checked(value: Any) -> Any:
        if value is not None:
            return convert(value)
        if nullable:
            return None
        raise Misfit("missing_value", f"expected {expected}, got null")

    return checked


def _convert(declared: pa.DataType) -> Convert:
    for applies, convert in _PLAIN:
        if applies(declared):
            return partial(convert, declared)
    for applies, make in _MAKERS:
        if applies(declared):
            return make(declared)
    raise TypeError(f"JSON has no {declared}")


def _wrong(declared: pa.DataType, value: Any, code: str = "wrong_type") -> Misfit:
    return Misfit(code, f"expected {type_text(declared)}, got {shown(value)}")


def _whole(declared: pa.DataType, value: Any) -> int:
    if not isinstance(value, Number):
        raise _wrong(declared, value)
    if not value.lstrip("-").isdigit():
        return _without_fraction(declared, value)
    if len(value) > _LONGEST_INTEGER:
        raise _wrong(declared, value, "out_of_range")
    return int(value)


def _without_fraction(declared: pa.DataType, value: Number) -> int:
    """A whole number that is written with zeros after the point, as `13.0`, or an exponent, as `1e3`."""
    number = decimals.parsed(value)
    whole = None if number is None else decimals.fitted(number, _LONGEST_WHOLE)
    if number is None or (whole is None and not decimals.too_large(number, _LONGEST_WHOLE)):
        raise _wrong(declared, value)
    if whole is None:
        raise _wrong(declared, value, "out_of_range")
    if abs(whole) > EXACT_DOUBLE and "e" in value.lower():
        raise Misfit("out_of_range", f"{_wrong(declared, value).message}, which may have been rounded")
    return int(whole)


def _integer(declared: pa.DataType) -> Convert:
    low, high = RANGES[declared]

    def convert(value: Any) -> int:
        number = _whole(declared, value)
        if low <= number <= high:
            return number
        message = f"expected {type_text(declared)} ({low} to {high}), got {shown(value)}"
        raise Misfit("out_of_range", message)

    return convert


def _epoch(declared: pa.DataType, value: Any) -> int:
    number = _whole(declared, value)
    if declared.unit == "ns":
        low, high = INT64
        inside, microseconds = low <= number <= high, number // 1000
    else:
        microseconds = number * MICROSECONDS[declared.unit]
        inside = times.FIRST_US <= microseconds <= times.LAST_US
    if inside:
        return microseconds
    raise _wrong(declared, value, "out_of_range")


def _float(declared: pa.DataType) -> Convert:
    single = declared == pa.float32()

    def convert(value: Any) -> float:
        if not isinstance(value, Number):
            raise _wrong(declared, value)
        # As a double first, a number could be rounded twice, and so not be the nearest.
        number: float = pa.array([str(value)]).cast(declared)[0].as_py() if single else float(value)
        if isfinite(number):
            return number
        raise _wrong(declared, value, "out_of_range")

    return convert


def _decimal(declared: pa.DataType, value: Any) -> Any:
    if not isinstance(value, str):
        raise _wrong(declared, value)
    number = decimals.parsed(value)
    if number is None:
        raise _wrong(declared, value, "bad_decimal")
    fitted = decimals.fitted(number, declared)
    if fitted is not None:
        return fitted
    large = decimals.too_large(number, declared)
    raise _wrong(declared, value, "out_of_range" if large else "bad_decimal")


def _boolean(declared: pa.DataType, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(declared, value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)


def _string(declared: pa.DataType, value: Any) -> str:
    if _is_text(value):
        return str(value)
    raise _wrong(declared, value)


def _any(_: pa.DataType, value: Any) -> str:
    return str(value) if isinstance(value, str) else exact_json(value)


def _binary(declared: pa.DataType, value: Any) -> bytes:
    if not _is_text(value):
        raise _wrong(declared, value)
    content = base64_bytes(value)
    if content is None:
        raise Misfit("bad_base64", f"expected {type_text(declared)} as base64 text, got {shown(value)}")
    return content


def base64_bytes(text: str) -> bytes | None:
    """What the text says in base64 (RFC 4648, padded, no white space); None if it is not that."""
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None


def _date(declared: pa.DataType, value: Any) -> int:
    days = times.midnight_days(value) if _is_text(value) else None
    if days is None:
        code = "bad_date" if _is_text(value) else "wrong_type"
        raise Misfit(code, f"expected {type_text(declared)} as YYYY-MM-DD, got {shown(value)}")
    return days


def _timestamp(_: pa.DataType, value: Any) -> int:
    if isinstance(value, Number):
        unit = next((unit for unit, digits in _EPOCH_DIGITS.items() if len(value) <= digits), "ns")
        hint = f"declare timestamp({unit}) for epoch numbers"
        raise Misfit("bad_timestamp", f"expected timestamp as RFC 3339 text, got {shown(value)}; {hint}")
    microseconds = times.timestamp_us(value) if _is_text(value) else None
    if microseconds is None:
        code = "bad_timestamp" if _is_text(value) else "wrong_type"
        raise Misfit(code, f"expected timestamp as RFC 3339 text, got {shown(value)}")
    if times.FIRST_US <= microseconds <= times.LAST_US:
        return microseconds
    raise Misfit("out_of_range", f"expected timestamp of the years 1 to 9999 in UTC, got {shown(value)}")


StructConvert = Callable[[Any], tuple[dict[str, Any], dict[str, Any] | None]]
"""Takes an object; returns the row, and by name what did not fit, None where everything did."""


def struct_converter(declared: pa.DataType, *, rescue: bool = False) -> StructConvert:
    """The function that converts objects. New fields are left out.

    With `rescue`, the smallest field of a struct that holds a type change is null in the row; an array is
    kept or lost whole.
    """
    members = {field.name: _member(field, rescue) for field in declared}

    def convert(value: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
        if not isinstance(value, dict) and value != []:
            raise _wrong(declared, value)
        # PHP writes an empty object as `[]`, Lua an empty list as `{}`.
        value = value or {}
        row: dict[str, Any] = {}
        lost: dict[str, Any] = {}
        for name, (convert_member, inner, rescued) in members.items():
            member = value.get(name)
            try:
                if inner is None or member is None:
                    row[name] = convert_member(member)
                    continue
                row[name], part = inner(member)
                if part is not None:
                    lost[name] = part
            except Misfit as misfit:
                if not rescued or misfit.code not in TYPE_CHANGES:
                    raise misfit.within(name) from None
                row[name], lost[name] = None, member
        return row, lost or None

    return convert


def _member(field: pa.Field, rescue: bool) -> tuple[Convert, StructConvert | None, bool]:
    """How a field is converted, how if it is a struct with parts to rescue, and whether it may be rescued."""
    inner = rescue and pa.types.is_struct(field.type)
    parts = struct_converter(field.type, rescue=True) if inner else None
    return converter(field), parts, rescue and field.nullable


def _struct(declared: pa.DataType) -> Convert:
    convert = struct_converter(declared)
    return lambda value: convert(value)[0]


def _list(declared: pa.DataType) -> Convert:
    convert_element = converter(declared.value_field)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list) and value != {}:
            raise _wrong(declared, value)
        return each(convert_element, enumerate(value))

    return convert


def _map(declared: pa.DataType) -> Convert:
    convert_item = converter(declared.item_field)

    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict) and value != []:
            raise _wrong(declared, value)
        return list(zip(value, each(convert_item, value.items()), strict=True)) if value else []

    return convert


_Applies = Callable[[Any], bool]
_PLAIN: list[tuple[_Applies, Callable[[pa.DataType, Any], Any]]] = [
    (pa.types.is_decimal, _decimal),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_string, _string),
    (lambda declared: declared == JSON, _any),
    (pa.types.is_binary, _binary),
    (pa.types.is_date, _date),
    (is_epoch, _epoch),
    (pa.types.is_timestamp, _timestamp),
]
_MAKERS: list[tuple[_Applies, Callable[[pa.DataType], Convert]]] = [
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_struct, _struct),
    (pa.types.is_list, _list),
    (pa.types.is_map, _map),
]
