"""Which columns the new fields of events get, once the proposals of all tasks are one."""

from __future__ import annotations

import json

import pyarrow as pa

from lakefeed.columns.column_types import event_name, type_text
from lakefeed.columns.names import clean_column_name
from lakefeed.columns.naming import Naming, as_new, cleaned_names
from lakefeed.columns.widening import merged_proposals
from lakefeed.formats import JsonFormat, Rules

CLEAN = Naming(True, True, clean_column_name, {}, {}, frozenset())


def proposed(*events: object) -> pa.Schema:
    """What one task proposes for a table without columns."""
    payloads = [json.dumps(event).encode() for event in events]
    found = JsonFormat().decoder(pa.schema([]), Rules(names="clean")).decode(payloads)
    assert found.unknown is not None
    return as_new(found.unknown)


def columns(*tasks: pa.Schema, naming: Naming = CLEAN, known: pa.Schema | None = None) -> dict[str, str]:
    found = naming.columns(merged_proposals(*tasks), known)
    return {field.name: type_text(field.type) for field in found}


def test_the_values_of_all_tasks_decide_how_a_column_is_called_and_its_type() -> None:
    few = proposed({"ID": 1, "M": {"A": 1}})
    many = proposed({"id": 1.5, "m": {"a": "x"}}, {"id": 2, "m": {"a": "y"}}, {"id": 3})

    assert columns(few, many) == columns(many, few) == {"id": "double", "m": "struct<a: json>"}


def test_numbers_follow_the_names_and_not_the_order_of_tasks() -> None:
    one, other = proposed({"a b": 1}), proposed({"a,b": "x", "a_b": True})
    expected = {"a_b": "boolean", "a_b_2": "long", "a_b_3": "string"}

    assert columns(one, other) == expected
    assert columns(other, one).items() == expected.items()


def test_a_column_that_the_table_makes_or_has_is_not_taken() -> None:
    naming = Naming(True, True, clean_column_name, {}, {}, frozenset({"a_b"}))

    assert columns(proposed({"a b": 1, "c d": 2}), naming=naming, known=pa.schema([("C_D", pa.int64())])) == {
        "a_b_2": "long",
        "c_d_2": "long",
    }


def test_names_of_options_are_those_of_columns() -> None:
    naming = Naming(True, True, clean_column_name, {}, {"order_id": "order_id"}, frozenset())

    found = naming.columns(proposed({"Order Id": 1}), None)

    assert [(event_name(one), one.name) for one in found] == [("Order Id", "order_id")]
    assert dict(cleaned_names(found)) == {"Order Id": "order_id"}


def test_a_proposal_that_is_named_already_stays() -> None:
    made = pa.schema([("US Gross", pa.int64())])

    assert CLEAN.columns(made, None) is made
