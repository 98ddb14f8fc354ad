"""Columns as pandas, Polars or Arrow's own functions make them, in the types that tables are made of.

Only the layout changes: large and viewed text becomes plain text, a dictionary its values, an extension what
it is stored as. No value changes. Tables have no type for a time of day and for a UUID, which become text,
and none for a duration, which becomes microseconds.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import JSON
from lakefeed.errors import TableError

_UUID = pa.uuid()
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", np.uint8)
_DIGITS = [at for at in range(36) if at not in (8, 13, 18, 23)]
"""Where the digits of a UUID are among its hyphens."""
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""How many of each unit are in a second."""
_ZEROS = r"(\.\d*?)0+$"
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def plain(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """The same columns; TableError names one whose type no table has. `name` is who made them."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        kind = plain_type(field.type)
        if kind is None:
            raise TableError(
                f"{name} returned a column '{field.name}' of type {field.type}, which tables do not have.\n"
                "Cast it in the function, or leave it out."
            )
        columns.append(plain_column(column, kind))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def plain_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the layout that `plain_type` gives its type."""
    types, own = pa.types, column.type
    if own.equals(kind):
        return column
    if own == _UUID:
        return _uuid_texts(column.storage)
    if isinstance(own, pa.BaseExtensionType):
        return plain_column(column.storage, kind)
    if types.is_dictionary(own):
        return plain_column(column.dictionary_decode(), kind)
    if types.is_time(own):
        return _time_texts(column)
    if types.is_duration(own):
        return _microseconds(column)
    if types.is_struct(own):
        children = [plain_column(one, to.type) for one, to in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if types.is_map(own):
        return _map(column, kind)
    if types.is_list(kind):
        values = plain_column(column.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(column), values, type=kind, mask=column.is_null())
    return pc.cast(column, kind)


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """The type without its layout; None where tables have no such type."""
    types = pa.types
    if kind == JSON:
        return pa.string()
    if isinstance(kind, pa.BaseExtensionType):
        return pa.string() if kind == _UUID else plain_type(kind.storage_type)
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind) or types.is_time(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_date64(kind):
        return pa.date32()
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_nested(kind):
        return _nested(kind)
    known = (
        types.is_string, types.is_binary, types.is_boolean, types.is_integer, types.is_floating,
        types.is_decimal, types.is_timestamp, types.is_date, types.is_null,
    )  # fmt: skip
    return kind if any(one(kind) for one in known) else None


def _nested(kind: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_struct(kind):
        members = [(member.name, plain_type(member.type)) for member in kind]
        # Parquet has no struct without a field.
        return None if not members or any(one is None for _, one in members) else pa.struct(members)
    if types.is_map(kind):
        key, item = plain_type(kind.key_type), plain_type(kind.item_type)
        return pa.map_(key, item) if key is not None and item is not None else None
    if any(one(kind) for one in _LISTS):
        value = plain_type(kind.value_type)
        return None if value is None else pa.list_(value)
    return None


def _offsets(column: pa.Array) -> pa.Array:
    """Where each list begins in the flattened column, and where the last one ends."""
    # Arrow's cast of a list view to a list loses values.
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _map(column: pa.MapArray, kind: pa.MapType) -> pa.Array:
    if column.offset or column.null_count:
        column = column.take(pa.array(np.arange(len(column))))
    keys, items = plain_column(column.keys, kind.key_type), plain_column(column.items, kind.item_type)
    made = pa.MapArray.from_arrays(column.offsets, keys, items, type=kind)
    return pc.if_else(column.is_valid(), made, pa.scalar(None, kind)) if column.null_count else made


def _uuid_texts(values: pa.Array) -> pa.Array:
    """UUIDs in their usual form: five groups of hexadecimal digits."""
    plain = values.cast(pa.binary()).fill_null(bytes(16))
    content = np.frombuffer(plain.buffers()[2], np.uint8)[plain.offset * 16 :][: len(values) * 16]
    texts = np.full((len(values), 36), ord("-"), np.uint8)
    texts[:, _DIGITS] = _HEXADECIMAL[np.stack([content >> 4, content & 15], axis=1)].reshape(-1, 32)
    made = pa.array(texts.view("S36").ravel()).cast(pa.string())
    return pc.if_else(values.is_valid(), made, None) if values.null_count else made


def _time_texts(values: pa.Array) -> pa.Array:
    """Times of day as `10:30:00.5`, with as many digits as they need, whatever their unit is."""
    second = _TICKS[values.type.unit]
    ticks = values.view(pa.int32() if pa.types.is_time32(values.type) else pa.int64())
    texts = values.cast(pa.string())
    beyond = pc.or_(pc.less(ticks, 0), pc.greater_equal(ticks, 86_400 * second)).fill_null(False)
    if pc.any(beyond).as_py():
        odd = [_clock(one, second) for one in ticks.filter(beyond).to_pylist()]
        texts = pc.replace_with_mask(texts, beyond, pa.array(odd, pa.string()))
    return pc.replace_substring_regex(pc.replace_substring_regex(texts, _ZEROS, r"\1"), r"\.$", "")


def _clock(ticks: int, second: int) -> str:
    """A time that is no time of day, such as the `24:00:00` that some databases have."""
    seconds, fraction = divmod(abs(ticks), second)
    digits = f".{fraction:0{len(str(second)) - 1}}" if fraction else ""
    return f"{'-' * (ticks < 0)}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{digits}"


def _microseconds(values: pa.Array) -> pa.Array:
    """Durations in microseconds; further digits are cut off, as those of timestamps are."""
    if values.type.unit == "ns":
        return pc.divide(values.view(pa.int64()), 1000)
    return values.cast(pa.duration("us")).view(pa.int64())
