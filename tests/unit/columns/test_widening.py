from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from lakefeed.columns.column_types import JSON, TIMESTAMP, type_text
from lakefeed.columns.evidence import Evidence
from lakefeed.columns.widening import merge_proposals, widen, wider

TYPES = [
    pa.null(),
    pa.int8(),
    pa.int64(),
    pa.uint32(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(10, 2),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
    pa.bool_(),
    pa.string(),
    TIMESTAMP,
    pa.list_(pa.null()),
    pa.list_(pa.int64()),
    pa.list_(pa.string()),
    pa.map_(pa.string(), pa.int64()),
    pa.struct([("a", pa.int64())]),
    pa.struct([("a", pa.string()), ("A", pa.int64())]),
]


def sorted_text(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{sorted((field.name, sorted_text(field.type)) for field in kind)}>"
    return str(kind)


@pytest.mark.parametrize(
    ("a", "b", "wide"),
    [
        (pa.int8(), pa.int32(), "int"),
        (pa.uint8(), pa.int8(), "short"),
        (pa.int64(), pa.float32(), "double"),
        (pa.int64(), pa.decimal128(38, 0), "decimal(38,0)"),
        (pa.int32(), pa.decimal128(10, 2), "decimal(12,2)"),
        (pa.decimal128(38, 0), pa.decimal128(10, 2), "double"),
        (pa.decimal128(38, 0), pa.float64(), "double"),
        (pa.null(), TIMESTAMP, "timestamp"),
        (TIMESTAMP, pa.string(), "string"),
        (pa.bool_(), pa.int64(), "string"),
        (pa.list_(pa.int64()), pa.list_(pa.float64()), "array<double>"),
        (pa.list_(pa.int64()), pa.int64(), "string"),
        (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.string())]), "struct<a: long, b: string>"),
    ],
)
def test_the_wider_type_holds_both(a: pa.DataType, b: pa.DataType, wide: str) -> None:
    assert type_text(widen(a, b)) == wide
    assert sorted_text(widen(a, b)) == sorted_text(widen(b, a))


def test_widening_does_not_depend_on_order() -> None:
    for a, b, c in itertools.product(TYPES, repeat=3):
        left, right = widen(widen(a, b), c), widen(a, widen(b, c))
        assert sorted_text(left) == sorted_text(right), (a, b, c)
        assert sorted_text(widen(a, b)) == sorted_text(widen(b, a)), (a, b)


def test_proposals_are_merged_by_name_in_order_of_appearance() -> None:
    a = pa.schema([("n", pa.int64()), ("meta", pa.struct([("x", pa.int64())]))])
    b = pa.schema([("at", TIMESTAMP), ("meta", pa.struct([("y", pa.bool_())])), ("n", pa.float64())])

    merged = merge_proposals(a, b)

    assert [(field.name, type_text(field.type)) for field in merged] == [
        ("n", "double"),
        ("meta", "struct<x: long, y: boolean>"),
        ("at", "timestamp"),
    ]


def test_names_that_differ_by_case_stay_apart_until_all_events_have_been_seen() -> None:
    a, b = pa.schema([("userid", pa.string())]), pa.schema([("userId", pa.int64())])

    assert merge_proposals(a, b).equals(pa.schema([*a, *b]))


LONG, DOUBLE, WHOLE = pa.int64(), pa.float64(), pa.decimal128(38, 0)
DAY, MOMENT = pa.date32(), pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("have", "seen", "needed"),
    [
        (LONG, DOUBLE, DOUBLE),
        (DOUBLE, LONG, DOUBLE),
        (pa.int16(), LONG, LONG),
        (LONG, WHOLE, WHOLE),
        (WHOLE, DOUBLE, WHOLE),
        (LONG, pa.decimal128(38, 10), pa.decimal128(38, 10)),
        (LONG, pa.decimal128(38, 20), LONG),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), pa.decimal128(9, 4)),
        (pa.float32(), DOUBLE, DOUBLE),
        (DAY, MOMENT, MOMENT),
        (MOMENT, DAY, MOMENT),
        (LONG, pa.string(), LONG),
        (LONG, JSON, LONG),
        (pa.string(), LONG, pa.string()),
        (pa.bool_(), LONG, pa.bool_()),
        (pa.list_(LONG), pa.list_(DOUBLE), pa.list_(DOUBLE)),
        (pa.list_(LONG), LONG, pa.list_(LONG)),
        (pa.map_(pa.string(), LONG), pa.map_(pa.string(), DOUBLE), pa.map_(pa.string(), DOUBLE)),
        (
            pa.struct([("a", LONG), ("b", LONG)]),
            pa.struct([("b", DOUBLE), ("new", LONG)]),
            pa.struct([("a", LONG), ("b", DOUBLE)]),
        ),
    ],
)
def test_a_column_gets_a_wider_number_or_time_and_nothing_else(
    have: pa.DataType, seen: pa.DataType, needed: pa.DataType
) -> None:
    found = wider(have, pa.field("c", seen))

    assert found == needed
    assert wider(found, pa.field("c", seen)) == found


def test_numbers_among_other_values_say_which_number_is_needed() -> None:
    seen = Evidence({"string": 9, "double": 1, "huge": 1}).to_field("c")
    inside = Evidence({"object": 1}, {"n": Evidence({"array": 1}, inside=Evidence({"double": 1}))}).to_field(
        "c"
    )

    assert wider(LONG, seen) == DOUBLE
    assert wider(LONG, Evidence({"huge": 3}).to_field("c")) == LONG
    assert wider(DAY, Evidence({"timestamp": 1}).to_field("c")) == MOMENT
    assert wider(pa.struct([("n", pa.list_(LONG))]), inside) == pa.struct([("n", pa.list_(DOUBLE))])
