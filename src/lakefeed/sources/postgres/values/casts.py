"""Postgres' text of a column becomes the column: one set of casts for COPY and for the stream of changes.

The session that made the text is set as `connection.SESSION` says. A value that its column cannot hold is
never made into another one: it becomes null, and its index is told. Such values are

- `NaN` in a decimal; years before 1 and after 9999 in dates and timestamps; `infinity` in both, unless
  infinite values are to be the first and the last that a column holds
- an array of more dimensions than its column is declared with
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.formats.fit.doubt import Doubt, either, kept, lifted
from lakefeed.sources.postgres.values import nested_text
from lakefeed.sources.postgres.values.finite import finite_texts
from lakefeed.sources.postgres.values.type_catalog import PostgresColumn
from lakefeed.sources.postgres.values.types import element, made

_NUMBER = r"^-?\d+(\.\d+)?$"
_DAY = r"^\d{4}-\d\d-\d\d"
_MOMENT = _DAY + r" \d\d:\d\d:\d\d(\.\d+)?([+-]\d\d(:?\d\d)?)?$"
_SIMPLE_ARRAY = r'^\{[^{}"\\]*\}$'
_HEX = np.full(256, 255, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]

_Convert = Callable[[pa.Array], pa.Array]


def cast(texts: pa.StringArray, column: PostgresColumn, *, finite: bool = False) -> tuple[pa.Array, Doubt]:
    """The values of a column in the type `made` says, null where they do not fit, and where that is.

    With `finite`, infinite dates and timestamps are the first and the last that a column holds.
    """
    if column.type.base is not None:
        return cast(texts, column.type.base, finite=finite)
    target, name = made(column), column.type.name
    if pa.types.is_string(target):
        return (_as_json(texts, column), None) if column.type.element else (texts, None)
    if pa.types.is_list(target):
        return _arrays(texts, column, finite) if column.type.element else _vectors(texts, target)
    if pa.types.is_struct(target):
        return _composites(texts, column, finite)
    if pa.types.is_map(target):
        return _one_by_one(texts, nested_text.hstore, target)
    if pa.types.is_boolean(target):
        return pc.equal(texts, "t"), None
    if pa.types.is_binary(target):
        return _bytes(pc.utf8_slice_codeunits(texts, 2) if name == "bytea" else texts)
    if pa.types.is_decimal(target):
        return _money(texts, target) if name == "money" else _tried(texts, _to(target), _NUMBER)
    if finite:
        texts = finite_texts(texts, name)
    if pa.types.is_date(target):
        return _tried(texts, _to(target), _DAY + "$")
    if target == TIMESTAMP:
        return _tried(texts, _to(TIMESTAMP) if name == "timestamptz" else _clock_of_utc, _MOMENT)
    return _tried(texts, _to(target), None)


def _to(target: pa.DataType) -> _Convert:
    return lambda texts: texts.cast(target)


def _clock_of_utc(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.timestamp("us")).view(TIMESTAMP)


def _tried(texts: pa.Array, convert: _Convert, good: str | None) -> tuple[pa.Array, Doubt]:
    """The values, first all at once; then without those that are not written as good ones are."""
    try:
        return convert(texts), None
    except pa.ArrowInvalid:
        if good is None:
            return _bisected(texts, convert)
    likely, doubt = kept(texts, pc.match_substring_regex(texts, good))
    try:
        return convert(likely), doubt
    except pa.ArrowInvalid:
        values, further = _bisected(likely, convert)
        return values, either(doubt, further)


def _bisected(texts: pa.Array, convert: _Convert) -> tuple[pa.Array, Doubt]:
    """Halves, until those that do not fit stand alone."""
    try:
        return convert(texts), None
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return convert(pa.nulls(1, pa.string())), np.ones(1, np.bool_)
    middle = len(texts) // 2
    halves = [_bisected(half, convert) for half in (texts.slice(0, middle), texts.slice(middle))]
    sizes = (middle, len(texts) - middle)
    doubts = [
        np.zeros(size, np.bool_) if half[1] is None else half[1]
        for half, size in zip(halves, sizes, strict=True)
    ]
    return pa.concat_arrays([half[0] for half in halves]), np.concatenate(doubts)


def _money(texts: pa.Array, target: pa.DataType) -> tuple[pa.Array, Doubt]:
    """Amounts in whatever way the locale writes them: all have the same number of digits after the point."""
    digits = pc.replace_substring_regex(texts, r"\D", "")
    minus = pc.if_else(pc.match_substring_regex(texts, r"[-(]"), "-", "")
    whole, doubt = _tried(pc.binary_join_element_wise(minus, digits, ""), _to(pa.decimal128(19, 0)), None)
    # The same digits, with the point where the locale has it.
    return pa.Array.from_buffers(target, len(whole), whole.buffers(), offset=whole.offset), doubt


def _bytes(digits: pa.Array) -> tuple[pa.Array, Doubt]:
    """Bytes from their hexadecimal digits, all at once."""
    whole = digits.cast(pa.binary()).fill_null(b"")
    offsets = np.frombuffer(whole.buffers()[1], np.int32)[whole.offset : whole.offset + len(whole) + 1]
    content = np.frombuffer(whole.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    nibbles = _HEX[content]
    if (nibbles > 15).any() or (np.diff(offsets) % 2).any():
        raise ValueError("the server does not write bytes in hexadecimal digits: set bytea_output to hex")
    joined = pa.py_buffer((nibbles[0::2] << 4) | nibbles[1::2])
    halved = pa.py_buffer(((offsets - offsets[0]) // 2).astype(np.int32))
    found = pa.Array.from_buffers(pa.binary(), len(whole), [None, halved, joined])
    return pc.if_else(digits.is_valid(), found, None) if digits.null_count else found, None


def _arrays(texts: pa.Array, column: PostgresColumn, finite: bool) -> tuple[pa.Array, Doubt]:
    inner, delimiter = element(column), _delimiter(column)
    simple = pc.all(pc.match_substring_regex(texts, _SIMPLE_ARRAY)).as_py() is not False
    if simple:
        offsets, parts = _split(texts, delimiter)
        parts = pc.if_else(pc.equal(parts, "NULL"), None, parts)
        doubt: Doubt = None
    else:
        lists, doubt = _one_by_one(
            texts, lambda text: _flat(text, delimiter), pa.list_(pa.field("element", pa.string()))
        )
        lists = pa.concat_arrays([lists, lists.slice(0, 0)])
        offsets, parts = lists.offsets.to_numpy(), lists.values
    values, unfit = cast(parts, inner, finite=finite)
    found = _lists(
        offsets, values, texts if doubt is None else kept(texts, pa.array(~doubt))[0], made(column)
    )
    return _nulled(found, either(doubt, lifted(offsets, unfit)))


def _nulled(column: pa.Array, doubt: Doubt) -> tuple[pa.Array, Doubt]:
    """A column with null for every value that holds one which does not fit."""
    if doubt is None:
        return column, None
    return column.take(pa.array(np.arange(len(column)), mask=doubt)), doubt


def _vectors(texts: pa.Array, target: pa.DataType) -> tuple[pa.Array, Doubt]:
    offsets, parts = _split(texts, ",")
    return _lists(offsets, parts.cast(target.value_type), texts, target), None


def _split(texts: pa.Array, delimiter: str) -> tuple[np.ndarray[Any, Any], pa.Array]:
    """Where each list begins among the parts, and the parts of all; what encloses a list is one character."""
    inside = pc.utf8_slice_codeunits(texts, 1, -1)
    lists = pc.split_pattern(pc.if_else(pc.equal(inside, ""), None, inside), delimiter)
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), lists.flatten()


def _lists(
    offsets: np.ndarray[Any, Any], values: pa.Array, given: pa.Array, target: pa.DataType
) -> pa.ListArray:
    mask = given.is_null() if given.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=target, mask=mask)


def _composites(texts: pa.Array, column: PostgresColumn, finite: bool) -> tuple[pa.Array, Doubt]:
    fields = column.type.fields
    least = 1 if column.type.only_grew else len(fields)
    rows, doubt = _parsed(texts, lambda text: nested_text.composite(text, len(fields), least=least))
    children = []
    for index, each in enumerate(fields):
        attribute = pa.array([row and row[index] for row in rows], pa.string())
        values, unfit = cast(attribute, each, finite=finite)
        children.append(values)
        doubt = either(doubt, unfit)
    mask = texts.is_null() if texts.null_count else None
    struct = pa.StructArray.from_arrays(children, fields=list(made(column)), mask=mask)
    return _nulled(struct, doubt)


def _one_by_one(texts: pa.Array, parse: Callable[[str], Any], target: pa.DataType) -> tuple[pa.Array, Doubt]:
    values, doubt = _parsed(texts, parse)
    return pa.array(values, target), doubt


def _parsed(texts: pa.Array, parse: Callable[[str], Any]) -> tuple[list[Any], Doubt]:
    """Values that only a parser can read; ValueError says that one does not fit."""
    wrong = np.zeros(len(texts), np.bool_)
    found: list[Any] = []
    for index, text in enumerate(texts.to_pylist()):
        try:
            found.append(None if text is None else parse(text))
        except ValueError:
            found.append(None)
            wrong[index] = True
    return found, wrong if wrong.any() else None


def _flat(text: str, delimiter: str) -> list[str | None]:
    elements = nested_text.array(text, delimiter)
    if any(isinstance(each, list) for each in elements):
        raise ValueError("an array of more than one dimension")
    return elements


def _as_json(texts: pa.Array, column: PostgresColumn) -> pa.Array:
    """Arrays that are declared with more dimensions."""
    leaf, delimiter = _leaf(element(column)), _delimiter(column)
    return pa.array(
        [
            None if text is None else nested_text.as_json(nested_text.array(text, delimiter), leaf)
            for text in texts.to_pylist()
        ],
        pa.string(),
    )


def _leaf(column: PostgresColumn) -> Callable[[str], str]:
    if column.type.base is not None:
        return _leaf(column.type.base)
    if column.type.name in ("int2", "int4", "int8", "float4", "float8", "numeric", "oid"):
        return nested_text.number_or_text
    if column.type.name == "bool":
        return lambda text: "true" if text == "t" else "false"
    return (lambda text: text) if column.type.name in ("json", "jsonb") else json.dumps


def _delimiter(column: PostgresColumn) -> str:
    """Boxes are the one type of Postgres whose arrays have another one."""
    assert column.type.element is not None
    return ";" if column.type.element.name == "box" else ","
