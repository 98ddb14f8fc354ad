"""Numbers as text become the nearest `float`, however they are read: never rounded twice."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakefeed.columns.column_types import declared_schema
from lakefeed.formats.csv.format import CsvFormat
from lakefeed.formats.json.format import JsonFormat
from lakefeed.formats.json.strict import StrictReader

BEYOND = Fraction(2**128 - 2**103)
"""The middle between the largest float and what would come next: from here on, none is nearest."""

SCHEMA = declared_schema({"f": "float", "l": "array<float>"})
MAPPED = declared_schema({"m": "map<string, float>"})


def nearest(text: str) -> float | None:
    """The float that is nearest to the number, of two the even one; None where none is."""
    number = Fraction(text)
    if abs(number) >= BEYOND:
        return None
    with np.errstate(over="ignore"):
        middle = np.clip(np.float32(float(text)), -np.finfo(np.float32).max, np.finfo(np.float32).max)
        near = [np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf)]
    finite = [each for each in (middle, *near) if np.isfinite(each)]
    return float(
        min(finite, key=lambda each: (abs(Fraction(float(each)) - number), each.view(np.uint32) & 1))
    )


@st.composite
def near_the_middle(draw: st.DrawFn) -> str:
    """A number at, just below or just above the middle between two floats, in all its digits."""
    first = np.float32(draw(st.floats(width=32, allow_nan=False, allow_infinity=False)))
    middle = (Fraction(float(first)) + Fraction(float(np.nextafter(first, np.float32(0))))) / 2
    off = draw(st.sampled_from([0, 0, 1, -1])) * abs(middle) / 10 ** draw(st.integers(15, 40))
    number = middle + off
    digits = 200
    scaled = number.numerator * 10**digits // number.denominator
    return f"{scaled}e-{digits}" if draw(st.booleans()) else f"{scaled / 10**digits!r}"


def from_json(text: str) -> tuple[float | None, ...]:
    payload = f'{{"f": {text}, "l": [{text}]}}'.encode()
    found = JsonFormat().decoder(SCHEMA).decode([payload, b"{}"])
    strict = StrictReader(SCHEMA).read([payload], [0])
    if found.refused:
        assert [one.code for one in (*found.refused, *strict.refused)] == ["out_of_range"] * 2
        return (None,)
    [row] = strict.rows.to_pylist()
    assert found.rows.to_pylist()[0] == row
    return row["f"], row["l"][0]


def from_map(text: str) -> float | None:
    found = JsonFormat().decoder(MAPPED).decode([f'{{"m": {{"k": {text}}}}}'.encode()])
    return None if found.refused else found.rows.to_pylist()[0]["m"][0][1]


def from_csv(text: str) -> float | None:
    found = CsvFormat(columns=("f",)).decoder(declared_schema({"f": "float"})).decode([text.encode()])
    return None if found.refused else found.rows.to_pylist()[0]["f"]


@settings(deadline=None)
@given(
    near_the_middle() | st.integers().map(str) | st.floats(allow_nan=False, allow_infinity=False).map(repr)
)
@example("1.00000005960464477540")
@example("16777217.0000000001")
@example("16777217")
@example("7.0064923216240854e-46")
@example("3.4028235677973366e38")
@example("3.4028235677973367e38")
@example("-3.4028235677973367e38")
def test_every_number_becomes_the_nearest_float(text: str) -> None:
    expected = nearest(text)

    assert set(from_json(text)) == {expected}
    assert from_map(text) == expected
    assert from_csv(text) == expected


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e39", "1e400"])
def test_what_is_no_finite_number_is_refused(text: str) -> None:
    payload = f'{{"f": {text}}}'.encode()

    assert JsonFormat().decoder(SCHEMA).decode([payload]).refused
