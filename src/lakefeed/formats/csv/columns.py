"""Columns of text become columns as they are read from JSON, so that both formats convert by the same rules.

As there, what cannot be decided on the whole column is left in doubt and decided value by value.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import type_text
from lakefeed.formats.fit.doubt import Doubt, kept
from lakefeed.formats.fit.type_rules import RANGES, is_epoch
from lakefeed.formats.refusal import Misfit, Number, shown

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_POINT_AT_AN_END = re.compile(r"-?(?:\.[0-9]+|(?:0|[1-9][0-9]*)\.)(?:[eE][+-]?[0-9]+)?")
"""Numbers such as `.5` and `5.`, which statistics programs write."""
_FRACTION = {sign: re.compile(rf"[-+]?[0-9]+{re.escape(sign)}[0-9]+") for sign in ".,"}
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}

# Patterns that Arrow casts without fail and without loss; all else is in doubt.
_SURE_INTEGER = r"^-?(?:0|[1-9][0-9]{0,17})$"
_SURE_FLOAT = r"^-?(?:(?:0|[1-9][0-9]{0,29})(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?$"


def read_column(texts: pa.StringArray, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
    """The column in the type that JSON is read with, null where it is in doubt."""
    if declared in RANGES or is_epoch(declared):
        return _cast(texts, _SURE_INTEGER, pa.int64())
    if pa.types.is_floating(declared):
        return _cast(texts, _SURE_FLOAT, declared)
    if pa.types.is_decimal(declared):
        return _cast(texts, _sure_decimal(declared), declared)
    if pa.types.is_boolean(declared):
        known, doubt = _sure(texts, "^(?:true|True|TRUE|false|False|FALSE)$")
        return pc.equal(pc.ascii_lower(known), "true"), doubt
    return texts, None


def json_value(text: str | None, declared: pa.DataType) -> Any:
    """The JSON value that the text stands for in a column of this type; itself if it fits none."""
    if text is None:
        return None
    if pa.types.is_boolean(declared):
        return _WORDS.get(text, text)
    is_float = pa.types.is_floating(declared)
    counts = declared in RANGES or is_float or pa.types.is_timestamp(declared)
    is_number = _NUMBER.fullmatch(text) or (is_float and _POINT_AT_AN_END.fullmatch(text))
    return Number(text) if counts and is_number else text


def has_fraction(declared: pa.DataType) -> bool:
    """Whether numbers of the type have a decimal sign."""
    return bool(pa.types.is_floating(declared) or pa.types.is_decimal(declared))


def with_points(texts: pa.StringArray) -> pa.StringArray:
    """Numbers with a decimal comma as JSON writes them. A text with a point is left in doubt."""
    points = pc.replace_substring(texts, ",", ".")
    return pc.if_else(pc.match_substring(texts, "."), pc.binary_join_element_wise("?", texts, ""), points)


def refuse_other_sign(text: str | None, declared: pa.DataType, decimal: str) -> None:
    """Raise Misfit for a number with the other decimal sign."""
    other = "," if decimal == "." else "."
    if text and _FRACTION[other].fullmatch(text):
        remedy = f"set `decimal: '{other}'` on the format if that is the decimal sign"
        raise Misfit("wrong_type", f"expected {type_text(declared)}, got {shown(text)}; {remedy}")


def _sure_decimal(declared: pa.DataType) -> str:
    whole, scale = declared.precision - declared.scale, declared.scale
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    return rf"^-?[0-9]{{1,{whole}}}{fraction}$" if whole else rf"^-?0{fraction}$"


def _cast(texts: pa.StringArray, shape: str, kind: pa.DataType) -> tuple[pa.Array, Doubt]:
    sure, doubt = _sure(texts, shape)
    return sure.cast(kind), doubt


def _sure(texts: pa.StringArray, shape: str) -> tuple[pa.StringArray, Doubt]:
    fits = pc.match_substring_regex(texts, shape)
    return (texts, None) if pc.all(fits).as_py() else kept(texts, fits)
