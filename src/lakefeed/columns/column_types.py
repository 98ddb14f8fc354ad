"""Column types: how they are written in the pipeline file, declared in Arrow and stored in the table.

A *declared* type says what a payload holds, a *stored* one what the table has. They differ where Delta has no
such type: an unsigned integer is stored in the next larger signed one, `timestamp(ms)`, declared as an
Arrow timestamp *without* a zone, is an epoch number in the payload and a UTC timestamp in the table, and
`json` takes every value and is stored as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import pyarrow as pa

from lakefeed.columns.grammar import Cursor, TypeSyntaxError
from lakefeed.columns.names import column_name_problem
from lakefeed.events import ORIGIN
from lakefeed.text import did_you_mean, listed

TIMESTAMP = pa.timestamp("us", "UTC")
"""The only timestamp that tables hold: every engine reads it alike."""

JSON = pa.json_(pa.string())
"""Any value: text as it is, everything else as its JSON text. Stored as a string."""

LARGEST_PRECISION = 38
"""The digits of the widest decimal that tables hold."""

MEANT = b"lakefeed.type"
"""The key in a column's metadata, in the table, that says what a string or a list of them is declared as."""

EVENT_NAME = b"lakefeed.name"
"""The key in a column's metadata, in the table, that holds the other name of its field in the events."""

DECLARED = b"lakefeed.declared"
"""The key in the metadata of a column, never in the table, that the pipeline file declares."""

NEW = b"lakefeed.new"
"""The key in the metadata of a field of events, never in the table, that has no column yet."""

DEEPEST = 20
"""How many structs, arrays and maps a column may have inside each other: what every reader bears.

delta-rs ends at 41 structs, Arrow at 31 maps; DuckDB takes twice the time for each array or map more.
"""

METADATA = pa.schema(
    [each.with_name("_topic" if each.name == "stream" else f"_{each.name}") for each in ORIGIN]
)
"""The columns that `metadata: true` adds to a table."""

_PLAIN: dict[str, pa.DataType] = {
    **dict.fromkeys(("string", "varchar", "utf8", "large_utf8"), pa.string()),
    **dict.fromkeys(("long", "bigint", "int64"), pa.int64()),
    **dict.fromkeys(("int", "integer", "int32"), pa.int32()),
    **dict.fromkeys(("short", "smallint", "int16"), pa.int16()),
    **dict.fromkeys(("byte", "tinyint", "int8"), pa.int8()),
    **dict.fromkeys(("float", "real", "float32"), pa.float32()),
    **dict.fromkeys(("double", "float64"), pa.float64()),
    **dict.fromkeys(("boolean", "bool"), pa.bool_()),
    **dict.fromkeys(("binary", "bytes"), pa.binary()),
    **dict.fromkeys(("date", "date32"), pa.date32()),
    "json": JSON,
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
}
_DECLARED = {DECLARED: b"true"}
_NAMING = (EVENT_NAME, DECLARED, NEW)
_STORED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    JSON: pa.string(),
}
_WORDS = {
    pa.string(): "string",
    pa.large_string(): "string",
    pa.int64(): "long",
    pa.int32(): "int",
    pa.int16(): "short",
    pa.int8(): "byte",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    JSON: "json",
}
_EPOCH_UNITS = ("s", "ms", "us", "ns")
_REFUSED = {
    "timestamp_ntz": "timestamp_ntz is not readable by every engine; use timestamp",
    "void": "a column needs a type; use string",
    "variant": "variant is not readable by every engine; use string or a struct",
}


def column(name: str, text: str) -> pa.Field:
    """The declared column for a type such as `decimal(10,2) not null`; ValueError says what is wrong."""
    cursor = Cursor(text)
    try:
        declared = _type(cursor, 0)
        nullable = not cursor.take_not_null()
        cursor.expect_end()
    except TypeSyntaxError as error:
        whole = text.count("(") <= text.count(")") and text.count("<") <= text.count(">")
        if whole or not any(name in text.lower() for name in ("decimal(", "map<", "struct<")):
            raise
        # Within braces, YAML ends a value at its comma.
        hint = 'within { } a type with a comma needs quotes, such as "decimal(10,2)"'
        raise TypeSyntaxError(f"{error}; {hint}") from None
    return pa.field(name, declared, nullable)


def declared_schema(columns: Mapping[str, str]) -> pa.Schema:
    """The declared schema for the `schema` of a table."""
    return pa.schema([column(name, text).with_metadata(_DECLARED) for name, text in columns.items()])


def event_name(field: pa.Field) -> str:
    """The name that events have for a column."""
    name = (field.metadata or {}).get(EVENT_NAME)
    return str(field.name) if name is None else name.decode()


def naming(field: pa.Field) -> dict[bytes, bytes]:
    """Of a column's metadata, what is about its name."""
    return {key: value for key, value in (field.metadata or {}).items() if key in _NAMING}


def _type(cursor: Cursor, level: int) -> pa.DataType:
    start = cursor.position
    name = cursor.take_word("a type")
    folded = name.lower()
    if folded in _REFUSED:
        raise cursor.error(_REFUSED[folded], start)
    if folded in _PLAIN:
        return _PLAIN[folded]
    if folded in _SIMPLE:
        return _SIMPLE[folded](cursor)
    if folded in _NESTED:
        if level >= DEEPEST:
            raise cursor.error(f"a column may be nested at most {DEEPEST} levels deep", start)
        return _NESTED[folded](cursor, level + 1)
    raise cursor.error(
        f"unknown type '{name}'{did_you_mean(name, (*_PLAIN, *_SIMPLE, *_NESTED)) or _known()}", start
    )


def _known() -> str:
    words = [*dict.fromkeys(_WORDS.values()), "decimal", "array", "map", "struct"]
    return f"; known are {listed(words)}"


def _timestamp(cursor: Cursor) -> pa.DataType:
    if not cursor.take("("):
        return TIMESTAMP
    start = cursor.position
    unit = cursor.take_word("s, ms, us or ns")
    if unit.lower() not in _EPOCH_UNITS:
        raise cursor.error(f"unknown unit '{unit}'; expected s, ms, us or ns", start)
    cursor.expect(")")
    return pa.timestamp(unit.lower())


def _decimal(cursor: Cursor) -> pa.DataType:
    precision, scale, start = 10, 0, cursor.position
    if cursor.take("("):
        start = cursor.position
        precision = cursor.take_number("the number of digits")
        scale = cursor.take_number("the digits after the point") if cursor.take(",") else 0
        cursor.expect(")")
    if not 1 <= precision <= LARGEST_PRECISION:
        raise cursor.error(f"a decimal has 1 to {LARGEST_PRECISION} digits, got {precision}", start)
    if scale > precision:
        raise cursor.error(f"a decimal({precision}) cannot have {scale} digits after the point", start)
    return pa.decimal128(precision, scale)


def _array(cursor: Cursor, level: int) -> pa.DataType:
    cursor.expect("<")
    element = _type(cursor, level)
    nullable = not cursor.take_not_null()
    cursor.expect(">")
    return pa.list_(pa.field("element", element, nullable))


def _map(cursor: Cursor, level: int) -> pa.DataType:
    cursor.expect("<")
    start = cursor.position
    if _type(cursor, level) != pa.string():
        raise cursor.error("the keys of a map must be of type string", start)
    cursor.expect(",")
    value = _type(cursor, level)
    nullable = not cursor.take_not_null()
    cursor.expect(">")
    return pa.map_(pa.string(), pa.field("value", value, nullable))


def _struct(cursor: Cursor, level: int) -> pa.DataType:
    cursor.expect("<")
    fields: list[pa.Field] = []
    while True:
        start = cursor.position
        name = cursor.take_name()
        if problem := column_name_problem(name):
            raise cursor.error(problem, start)
        if name.casefold() in {field.name.casefold() for field in fields}:
            raise cursor.error(f"the struct has '{name}' twice", start)
        cursor.expect(":")
        declared = _type(cursor, level)
        fields.append(pa.field(name, declared, not cursor.take_not_null(), _DECLARED))
        if not cursor.take(","):
            break
    cursor.expect(">")
    return pa.struct(fields)


_SIMPLE: dict[str, Callable[[Cursor], pa.DataType]] = {"timestamp": _timestamp, "decimal": _decimal}
_NESTED: dict[str, Callable[[Cursor, int], pa.DataType]] = {
    "array": _array,
    "list": _array,
    "map": _map,
    "struct": _struct,
}


def stored(schema: pa.Schema) -> pa.Schema:
    """The schema that the table has, for a declared one; metadata of a column says where it is `json`."""
    return pa.schema([_stored_field(field) for field in schema])


def _stored_field(field: pa.Field) -> pa.Field:
    known = field.metadata or {}
    found = {MEANT: _json_inside(field.type) or known.get(MEANT), EVENT_NAME: known.get(EVENT_NAME)}
    metadata = {key: value for key, value in found.items() if value is not None}
    return pa.field(field.name, stored_type(field.type), field.nullable, metadata=metadata or None)


def _json_inside(kind: pa.DataType) -> str | None:
    """What a column of the table cannot say by its type; structs leave that to their fields."""
    if kind == JSON:
        return "json"
    if pa.types.is_list(kind):
        inner = _json_inside(kind.value_type)
        return f"array<{inner}>" if inner else None
    if pa.types.is_map(kind):
        inner = _json_inside(kind.item_type)
        return f"map<string, {inner}>" if inner else None
    return None


def meant(field: pa.Field) -> pa.Field:
    """The declared column for one that a table has, by what its metadata says."""
    kind, declared = _meant_inside(field.type), (field.metadata or {}).get(MEANT)
    if declared:
        with suppress(ValueError):
            kind = _overlaid(kind, column(field.name, declared.decode()).type)
    return pa.field(field.name, kind, field.nullable, naming(field) or None)


def _meant_inside(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([meant(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_meant_inside(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_meant_inside(kind.item_type)))
    # In a table, one without a zone is no epoch number: it was made elsewhere and holds the clock of UTC.
    return TIMESTAMP if pa.types.is_timestamp(kind) else kind


def _overlaid(have: pa.DataType, declared: pa.DataType) -> pa.DataType:
    if declared == JSON and have == pa.string():
        return JSON
    if pa.types.is_list(have) and pa.types.is_list(declared):
        return pa.list_(have.value_field.with_type(_overlaid(have.value_type, declared.value_type)))
    if pa.types.is_map(have) and pa.types.is_map(declared):
        return pa.map_(
            have.key_type, have.item_field.with_type(_overlaid(have.item_type, declared.item_type))
        )
    return have


def stored_type(declared: pa.DataType) -> pa.DataType:
    """The type that the table has, for a declared one; nested types are followed down."""
    if pa.types.is_struct(declared):
        return pa.struct([_stored_field(field) for field in declared])
    if pa.types.is_list(declared):
        return pa.list_(declared.value_field.with_type(stored_type(declared.value_type)))
    if pa.types.is_map(declared):
        item = declared.item_field
        return pa.map_(declared.key_type, item.with_type(stored_type(item.type)))
    if pa.types.is_timestamp(declared):
        return TIMESTAMP
    return _STORED.get(declared, declared)


def depth(kind: pa.DataType) -> int:
    """How many structs, arrays and maps are inside each other; 0 for a plain type."""
    if pa.types.is_map(kind):
        return 1 + depth(kind.item_type)
    inner = [depth(kind.field(index).type) for index in range(kind.num_fields)]
    return 1 + max(inner, default=0) if pa.types.is_nested(kind) else 0


def type_text(kind: pa.DataType) -> str:
    """A type in the words of the pipeline file, for messages."""
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{_quoted(field.name)}: {column_text(field)}' for field in kind)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{column_text(kind.value_field)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {column_text(kind.item_field)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return f"timestamp({kind.unit})"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return _WORDS.get(kind, str(kind))


def meant_text(field: pa.Field) -> str:
    """The type of a column that a table has, in the words of the pipeline file: `json` where it is meant."""
    return type_text(meant(field).type)


def column_text(field: pa.Field) -> str:
    """The type of a declared column in the words of the pipeline file, with `not null`."""
    return type_text(field.type) + ("" if field.nullable else " not null")


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"
