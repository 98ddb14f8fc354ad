from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.columns.column_types import column, declared_schema, stored, stored_type, type_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("string", pa.string()),
        ("Utf8", pa.string()),
        ("BIGINT", pa.int64()),
        ("Int8", pa.int8()),
        ("UInt64", pa.uint64()),
        ("real", pa.float32()),
        ("bool", pa.bool_()),
        ("bytes", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp(ms)", pa.timestamp("ms")),
        ("Timestamp( NS )", pa.timestamp("ns")),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(12)", pa.decimal128(12, 0)),
        ("decimal(38, 38)", pa.decimal128(38, 38)),
        ("array<long>", pa.list_(pa.field("element", pa.int64()))),
        ("map<string, double>", pa.map_(pa.string(), pa.float64())),
    ],
)
def test_a_type_is_read_in_any_case(text: str, expected: pa.DataType) -> None:
    field = column("c", text)

    assert field.type == expected
    assert field.nullable


def test_not_null_may_follow_a_column_a_struct_field_and_an_element() -> None:
    field = column("c", "struct<a: long NOT  NULL, b: array<string not null>> not null")

    assert not field.nullable
    assert not field.type.field("a").nullable
    assert field.type.field("b").nullable
    assert not field.type.field("b").type.value_field.nullable


def test_types_nest_as_deep_as_wanted() -> None:
    field = column("c", "map<string, array<struct<a: struct<`odd-name`: decimal(4,2)>, b: timestamp(s)>>>")

    inner = field.type.item_type.value_type
    assert inner.field("a").type.field("odd-name").type == pa.decimal128(4, 2)
    assert inner.field("b").type == pa.timestamp("s")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("strng", "unknown type 'strng', did you mean 'string'?"),
        ("array<lnog>", "unknown type 'lnog', did you mean 'long'? (at character 7)"),
        ("", "expected a type but the text ends"),
        ("long null", "unexpected 'null' (at character 6)"),
        ("decimal(39)", "a decimal has 1 to 38 digits, got 39 (at character 9)"),
        ("decimal(0)", "a decimal has 1 to 38 digits, got 0 (at character 9)"),
        ("decimal(5,6)", "a decimal(5) cannot have 6 digits after the point (at character 9)"),
        ("decimal(a)", "expected the number of digits, got 'a)' (at character 9)"),
        ("timestamp(days)", "unknown unit 'days'; expected s, ms, us or ns (at character 11)"),
        ("timestamp_ntz", "timestamp_ntz is not readable by every engine; use timestamp"),
        ("struct<>", "expected a field name, got '>' (at character 8)"),
        ("struct<a long>", "expected ':', got 'long>' (at character 10)"),
        ("struct<a: long, A: long>", "the struct has 'A' twice (at character 17)"),
        ("struct<`a b`: long>", "a column name may not contain a space (at character 8)"),
        ("struct<`a: long>", "expected a closing backtick, got '`a: long>' (at character 8)"),
        ("map<long, long>", "the keys of a map must be of type string (at character 5)"),
        ("array<long", "expected '>' but the text ends (at character 11)"),
    ],
)
def test_a_type_that_cannot_be_read_says_what_and_where(text: str, message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        column("c", text)

    assert str(refusal.value) == message


def test_stored_types_are_those_that_every_engine_reads() -> None:
    declared = declared_schema(
        {
            "a": "uint8 not null",
            "b": "uint16",
            "c": "uint32",
            "d": "uint64",
            "e": "timestamp(ns)",
            "f": "struct<x: array<uint8>, y: map<string, timestamp(s)>>",
            "g": "string",
        }
    )

    kept = stored(declared)

    assert [type_text(field.type) for field in kept] == [
        "short",
        "int",
        "long",
        "long",
        "timestamp",
        "struct<x: array<short>, y: map<string, timestamp>>",
        "string",
    ]
    assert not kept.field("a").nullable


def _types() -> st.SearchStrategy[str]:
    plain = st.sampled_from(
        ["string", "long", "uint16", "decimal(7,3)", "timestamp", "timestamp(us)", "date"]
    )
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            inner.map(lambda text: f"array<{text} not null>"),
            inner.map(lambda text: f"map<string, {text}>"),
            st.tuples(inner, inner).map(lambda pair: f"struct<a: {pair[0]} not null, `b-c`: {pair[1]}>"),
        ),
        max_leaves=6,
    )


@given(_types())
def test_a_type_in_words_is_read_back_as_the_same_type(text: str) -> None:
    declared = column("c", text).type

    assert column("c", type_text(declared)).type == declared
    assert stored_type(stored_type(declared)) == stored_type(declared)


@pytest.mark.parametrize("text", ["decimal(10", "map<string"])
def test_type_that_a_comma_has_cut_asks_for_quotes(text: str) -> None:
    with pytest.raises(ValueError, match=r'within \{ \} a type with a comma needs quotes, such as "decimal'):
        column("price", text)


def test_unknown_type_lists_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"unknown type 'number'; known are string, long, .* and struct"):
        column("price", "number")
