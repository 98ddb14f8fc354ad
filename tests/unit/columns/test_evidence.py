"""Which type follows from the values that were seen: most of them decide."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.columns.column_types import JSON, declared_schema, meant, stored, type_text
from lakefeed.columns.evidence import Evidence
from lakefeed.columns.inferred import inferred_columns
from lakefeed.columns.widening import merge_proposals
from support.decoding import proposed


@pytest.mark.parametrize(
    ("counts", "chosen", "odd"),
    [
        ({"long": 100}, "long", 0),
        ({"long": 95, "string": 5}, "long", 5),
        ({"long": 94, "string": 6}, "json", 0),
        ({"long": 90, "double": 5, "string": 5}, "double", 5),
        ({"long": 99, "decimal": 1}, "decimal(38,0)", 0),
        ({"long": 99, "huge": 1}, "long", 1),
        ({"double": 1, "huge": 99}, "double", 0),
        ({"long": 50, "huge": 50}, "json", 0),
        ({"timestamp": 99, "string": 1}, "timestamp", 1),
        ({"timestamp": 94, "string": 6}, "string", 0),
        ({"timestamp": 93, "string": 4, "long": 3}, "string", 3),
        ({"string": 99, "array": 1}, "string", 1),
        ({"boolean": 1, "long": 1}, "json", 0),
    ],
)
def test_most_of_the_values_decide_and_a_twentieth_may_be_odd(
    counts: dict[str, int], chosen: str, odd: int
) -> None:
    found = Evidence(counts)

    assert type_text(found.type()) == chosen
    assert found.odd() == odd


def test_a_hundred_odd_values_among_fifty_thousand_do_not_decide() -> None:
    payloads = [
        b'{"id": %d, "total": %s}' % (n, b'"n/a"' if n % 500 == 0 else b"%d.25" % n) for n in range(50_000)
    ]

    proposal = proposed(*payloads)

    assert {field.name: type_text(field.type) for field in proposal} == {"id": "long", "total": "double"}
    total = inferred_columns(proposal)[1]
    assert (total.column, total.counts, total.odd) == ("total", {"number": 49_900, "string": 100}, 100)


def test_what_is_inside_objects_and_arrays_is_decided_by_the_same_rule() -> None:
    payloads = [b'{"o": {"a": 1}, "l": [1, 2], "m": ["x", 1]}'] * 99 + [b'{"o": {"a": "n/a"}, "l": ["x"]}']

    proposal = proposed(*payloads)

    types = {field.name: type_text(field.type) for field in proposal}
    assert types == {"o": "struct<a: long>", "l": "array<long>", "m": "array<json>"}
    assert {one.column: one.odd for one in inferred_columns(proposal)} == {
        **{"o": 0, "o.a": 1, "l": 0, "l[]": 1},
        **{"m": 0, "m[]": 0},
    }


values = st.sampled_from(
    [
        *(b"1", b"2.5", b'"x"', b'"2024-03-01T12:00:00Z"', b"true", b"null", b"[]", b"{}", b"[1]"),
        *(b'["x", 1]', b'{"a": 1}', b'{"a": "x", "b": [2]}', b'{"a": []}', b"[[], {}]"),
        *(b"9223372036854775808", b"1" + b"0" * 40),
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(values, st.integers(1, 30)), max_size=8), st.integers(1, 7), st.randoms())
def test_neither_order_nor_split_into_tasks_changes_what_is_inferred(
    parts: list[tuple[bytes, int]], size: int, shuffle: object
) -> None:
    payloads = [b'{"v": %s}' % value for value, count in parts for _ in range(count)]
    mixed = list(payloads)
    shuffle.shuffle(mixed)  # type: ignore[attr-defined]
    whole = proposed(*payloads)

    merged = pa.schema([])
    for start in range(0, len(mixed), size):
        merged = merge_proposals(
            merged, pa.ipc.read_schema(proposed(*mixed[start : start + size]).serialize())
        )

    assert {field.name: sorted_text(field.type) for field in merged} == {
        field.name: sorted_text(field.type) for field in whole
    }
    assert {one.column: (one.counts, one.odd) for one in inferred_columns(merged)} == {
        one.column: (one.counts, one.odd) for one in inferred_columns(whole)
    }


def sorted_text(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{sorted((field.name, sorted_text(field.type)) for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{sorted_text(kind.value_type)}>"
    return str(kind)


def test_a_table_remembers_which_of_its_strings_take_any_value() -> None:
    declared = declared_schema(
        {
            "a": "json",
            "l": "array<json>",
            "m": "map<string, array<json>>",
            "o": "struct<x: json, y: string, z: array<struct<q: json>>>",
            "s": "string",
        }
    )

    table = stored(declared)

    assert [type_text(field.type) for field in table][:2] == ["string", "array<string>"]
    assert [meant(field).type for field in table] == [field.type for field in declared]
    assert meant(pa.field("a", pa.int64(), metadata={"lakefeed.type": "json"})).type == pa.int64()
    assert meant(pa.field("a", pa.string(), metadata={"lakefeed.type": "what<"})).type == pa.string()
    assert meant(pa.field("a", pa.string())).type != JSON
