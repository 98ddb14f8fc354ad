"""Whole numbers in columns of floats that were inferred."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.columns.column_types import declared_schema
from lakefeed.formats import Decoded, Rules
from lakefeed.formats.json.format import JsonFormat

EVEN, ODD = 2**53, 2**53 + 1


def decode(kind: str, *texts: str, exact: bool = True) -> Decoded:
    rules = Rules(new_column="ignore", exact=frozenset(["v"]) if exact else frozenset())
    payloads = [f'{{"v": {text}}}'.encode() for text in texts]
    return JsonFormat().decoder(declared_schema({"v": kind}), rules).decode(payloads)


@pytest.mark.parametrize("sign", ["", "-"])
def test_whole_number_that_a_double_rounds_is_refused(sign: str) -> None:
    decoded = decode("double", "1.5", f"{sign}{EVEN}", f"{sign}{ODD}", "null", f"{sign}{ODD}.0", "1e300")

    assert [(one.index, one.code) for one in decoded.refused] == [(2, "out_of_range")]
    assert decoded.refused[0].error == f"v: expected double, got {sign}{ODD}, which it cannot hold exactly"
    number = float(f"{sign}{EVEN}")
    assert decoded.rows.column("v").to_pylist() == [1.5, number, None, number, 1e300]


def test_declared_column_takes_the_nearest_number() -> None:
    decoded = decode("double", "1.5", str(ODD), exact=False)

    assert decoded.refused == []
    assert decoded.rows.column("v").to_pylist() == [1.5, float(EVEN)]


@pytest.mark.parametrize(
    ("kind", "text", "where"),
    [
        ("struct<a: long, b: double>", '{{"a": 9007199254740993, "b": {}}}', "v.b"),
        ("array<double>", "[0.5, {}]", "v[1]"),
        ("map<string, double>", '{{"x": 0.5, "y": {}}}', "v.y"),
        ("array<struct<b: float>>", '[null, {{"b": {}}}]', "v[1].b"),
    ],
)
def test_numbers_inside_are_exact_as_well(kind: str, text: str, where: str) -> None:
    decoded = decode(kind, text.format("1"), text.format(ODD), text.format("2.5"))

    (refused,) = decoded.refused
    assert (refused.index, refused.code) == (1, "out_of_range")
    assert refused.error.startswith(f"{where}: expected ")
    assert decoded.rows.num_rows == 2


@given(st.lists(st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_become_themselves_or_are_refused(numbers: list[int | float]) -> None:
    decoded = decode("double", *(str(one) for one in numbers))

    assert {one.index for one in decoded.refused} == {
        at for at, one in enumerate(numbers) if float(one) != one
    }
    assert decoded.rows.column("v").to_pylist() == [float(one) for one in numbers if float(one) == one]
