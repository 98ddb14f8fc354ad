"""Texts: joined, cut, trimmed, searched."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sql.arrow.value import Function, Kernel, Value, first_errors, of_one, strict_errors
from lakefeed.sql.expression import Call, Literal


def _concat(call: Call, values: Sequence[Value], rows: int) -> Value:
    separator = pa.scalar("" if call.type == pa.string() else b"", call.type)
    joined = pc.binary_join_element_wise(*(value.data for value in values), separator)
    return Value(joined, strict_errors(values, rows))


def _concat_ws(call: Call, values: Sequence[Value], rows: int) -> Value:
    # Arrow's own way to skip nulls loses the rows that have nothing else.
    separator = values[0].data.as_py()
    led = [
        pc.fill_null(pc.binary_join_element_wise(separator, value.column(rows), ""), "")
        for value in values[1:]
    ]
    joined = pc.binary_join_element_wise(*led, "")
    return Value(pc.utf8_slice_codeunits(joined, len(separator)), first_errors(values))


def _length(column: pa.Array) -> pa.Array:
    return pc.utf8_length(column) if column.type == pa.string() else pc.binary_length(column)


def _trim(trim: Callable[..., Any]) -> Kernel:
    def kernel(call: Call, values: Sequence[Value], rows: int) -> Value:
        characters = call.given[1].value if len(call.given) > 1 else " "  # type: ignore[attr-defined]
        column = values[0].column(rows)
        return Value(trim(column, characters=characters) if characters else column, values[0].errors)

    return kernel


def _substring(call: Call, values: Sequence[Value], rows: int) -> Value:
    column = values[0].column(rows)
    position, length = (one.value for one in call.given[1:])  # type: ignore[attr-defined]
    start = position - 1 if position > 0 else position
    stop = start + length
    if length <= 0:
        cut = pc.utf8_slice_codeunits(column, 0, 0)
    elif start < 0 <= stop:
        cut = pc.utf8_slice_codeunits(column, start)
    else:
        cut = pc.utf8_slice_codeunits(column, start, min(stop, 2**31 - 1))
    return Value(cut, values[0].errors)


def _search(search: Callable[[pa.Array, str], Any]) -> Kernel:
    def kernel(call: Call, values: Sequence[Value], rows: int) -> Value:
        sought = call.given[1].value  # type: ignore[attr-defined]
        return Value(search(values[0].column(rows), sought), values[0].errors)

    return kernel


def _like(call: Call, values: Sequence[Value], rows: int) -> Value:
    pattern = _expression(call.given[1].value, call.option("escapeChar"))  # type: ignore[attr-defined]
    assert pattern is not None
    return Value(pc.match_substring_regex(values[0].column(rows), pattern), values[0].errors)


def _expression(pattern: str, escape: str) -> str | None:
    """The regular expression for a pattern of LIKE; None where an escape stands before anything else."""
    parts, at = [], 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("_", "%", escape):
                return None
            parts.append(re.escape(pattern[at]))
        else:
            parts.append({"_": ".", "%": ".*"}.get(character) or re.escape(character))
        at += 1
    return rf"\A(?s:{''.join(parts)})\z"


def _replace(call: Call, values: Sequence[Value], rows: int) -> Value:
    sought, instead = (one.value for one in call.given[1:])  # type: ignore[attr-defined]
    column = values[0].column(rows)
    return Value(pc.replace_substring(column, sought, instead) if sought else column, values[0].errors)


def only_texts(call: Call) -> str | None:
    """The limit of functions that Arrow has for texts, and for no other type."""
    known = all(one.type == pa.string() for one in call.given)
    return None if known else f"{call.name} of other types than texts"


def _texts_or_bytes(call: Call) -> str | None:
    known = all(one.type == call.type for one in call.given) and call.type in (pa.string(), pa.binary())
    return None if known and call.given else f"{call.name} of other types than texts"


def _constants(call: Call) -> str | None:
    """Only the first argument may differ from row to row."""
    if call.given[0].type != pa.string():
        return f"{call.name} of other types than texts"
    constant = all(isinstance(one, Literal) and one.value is not None for one in call.given[1:])
    return None if constant else f"{call.name} with arguments that are not constant"


def _constant_separator(call: Call) -> str | None:
    first = call.given[0]
    if not isinstance(first, Literal) or first.value is None or len(call.given) < 2:
        return "concat_ws with a separator that is not constant"
    return only_texts(call)


def _known_pattern(call: Call) -> str | None:
    if problem := _constants(call):
        return problem
    pattern = call.given[1].value  # type: ignore[attr-defined]
    return None if _expression(pattern, call.option("escapeChar")) else "like with such an escape"


_NOTE = "texts, the other arguments constant"
FUNCTIONS = {
    "Concat": Function("concat, ||", _concat, _texts_or_bytes, "texts or binary"),
    "ConcatWs": Function("concat_ws", _concat_ws, _constant_separator, "texts, a constant separator"),
    "Length": Function("length, char_length", of_one(_length)),
    "OctetLength": Function("octet_length", of_one(pc.binary_length)),
    "StringTrim": Function("trim", _trim(pc.utf8_trim), _constants, _NOTE),
    "StringTrimLeft": Function("ltrim", _trim(pc.utf8_ltrim), _constants, _NOTE),
    "StringTrimRight": Function("rtrim", _trim(pc.utf8_rtrim), _constants, _NOTE),
    "Substring": Function("substring, left, right", _substring, _constants, _NOTE),
    "StartsWith": Function("startswith", _search(pc.starts_with), _constants, _NOTE),
    "EndsWith": Function("endswith", _search(pc.ends_with), _constants, _NOTE),
    "Contains": Function("contains", _search(pc.match_substring), _constants, _NOTE),
    "Like": Function("LIKE", _like, _known_pattern, _NOTE),
    "StringReplace": Function("replace", _replace, _constants, _NOTE),
}
