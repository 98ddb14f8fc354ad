"""Columns that take any value: in JSON, and in formats whose values have types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakefeed.columns.column_types import declared_schema
from lakefeed.formats import DEFAULT_RULES
from lakefeed.formats.csv.format import CsvFormat
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.json.format import JsonFormat


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('"n/a"', "n/a"),
        ("5", "5"),
        ("1.10", "1.10"),
        ("-0", "-0"),
        ("0", "0"),
        ("1e2", "1e2"),
        ("123456789012345678901234567890.5", "123456789012345678901234567890.5"),
        ("true", "true"),
        ("false", "false"),
        ("null", None),
        ('{"a": [1, 2.50], "b": "é"}', '{"a":[1,2.50],"b":"é"}'),
        ("[]", "[]"),
        ('"5"', "5"),
    ],
)
def test_text_stays_and_every_other_value_becomes_its_json_text(value: str, text: str | None) -> None:
    columns = {"id": "long", "v": "json", "l": "array<json>", "o": "struct<v: json, n: double>"}
    decoder = JsonFormat().decoder(declared_schema(columns))

    payload = f'{{"id": 1, "v": {value}, "l": [{value}], "o": {{"v": {value}, "n": 0.5}}}}'.encode()
    decoded = decoder.decode([payload] * 3)

    assert decoded.refused == []
    assert decoded.rows.to_pylist() == [{"id": 1, "v": text, "l": [text], "o": {"v": text, "n": 0.5}}] * 3


def test_a_declared_string_still_refuses_a_number() -> None:
    decoded = JsonFormat().decoder(declared_schema({"v": "string"})).decode([b'{"v": 5}'])

    assert [one.error for one in decoded.refused] == ["v: expected string, got 5"]


def test_other_formats_fill_such_a_column_too() -> None:
    made = pa.array(
        [{"n": 1, "s": "x", "o": {"a": 1.5}, "l": [1]}, {"n": None, "s": None, "o": None, "l": None}]
    )
    schema = declared_schema(dict.fromkeys(("n", "s", "o", "l"), "json"))

    fitted = Fitter(schema, DEFAULT_RULES).fit(made)

    assert not fitted.refused
    assert fitted.rows.to_pylist() == [
        {"n": "1", "s": "x", "o": '{"a":1.5}', "l": "[1]"},
        {"n": None, "s": None, "o": None, "l": None},
    ]


def test_csv_fills_such_a_column_with_the_text_as_it_is() -> None:
    decoder = CsvFormat(columns=("a", "b")).decoder(declared_schema({"a": "json", "b": "long"}))

    decoded = decoder.decode([b"5,1", b"x,2"])

    assert decoded.rows.to_pylist() == [{"a": "5", "b": 1}, {"a": "x", "b": 2}]
