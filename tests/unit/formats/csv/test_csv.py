"""What the csv format makes of a record, value by value."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.errors import PipelineFileError
from lakefeed.formats.csv.format import CsvFormat
from lakefeed.formats.json.format import JsonFormat
from lakefeed.pipeline.loading.load import load
from support.decoding import decode, refusal, rows

EVERY = {
    "s": "string",
    "i": "int",
    "u": "uint64",
    "f": "double",
    "d": "decimal(10,2)",
    "b": "boolean",
    "day": "date",
    "at": "timestamp",
    "ms": "timestamp(ms)",
    "raw": "binary",
}


@pytest.mark.parametrize("cut_off", [b"a,b", b'"a\n', b"a,b\n"])
def test_header_that_is_cut_off_does_not_touch_the_next_record(cut_off: bytes) -> None:
    whole = cut_off + b'"\n1' if b'"' in cut_off else cut_off.rstrip() + b"\n1,2"

    decoded = decode(CsvFormat(header=True), {}, cut_off, whole, whole)

    assert [one.index for one in decoded.refused] == [0]
    assert decoded.rows.num_rows == 2


def test_csv_values_become_the_declared_types() -> None:
    record = b'"a ""b"", c",-5,7,1.5e3,12.5,true,2026-11-15,2026-11-15 10:00:00+02:00,1500,AQID'

    [row] = rows(CsvFormat(columns=tuple(EVERY)), EVERY, record)

    assert row == {
        "s": 'a "b", c',
        "i": -5,
        "u": 7,
        "f": 1500.0,
        "d": Decimal("12.50"),
        "b": True,
        "day": dt.date(2026, 11, 15),
        "at": dt.datetime(2026, 11, 15, 8, tzinfo=dt.UTC),
        "ms": dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC),
        "raw": b"\x01\x02\x03",
    }


def test_header_in_quotes_with_another_delimiter_names_it() -> None:
    found = refusal(CsvFormat(header=True), {"id": "long"}, b'"id";"name"\r\n"1";"a"')

    text = """the header is not separated by ','; with ';' it has 2: set `delimiter: ";"`"""
    assert found == ("bad_csv", text)


def test_numbers_and_booleans_as_pandas_and_excel_write_them() -> None:
    form, columns = CsvFormat(columns=("n", "b")), {"n": "long", "b": "boolean"}

    found = rows(form, columns, b"13.0,True", b",FALSE", b"1e3,TRUE", b"7,False", b"7,true")

    assert [row["n"] for row in found] == [13, None, 1000, 7, 7]
    assert [row["b"] for row in found] == [True, False, True, False, True]


@pytest.mark.parametrize("kind", ["double", "float", "decimal(5,2)"])
def test_numbers_may_begin_or_end_with_the_point(kind: str) -> None:
    forms = CsvFormat(columns=("v",)), CsvFormat(columns=("v",), delimiter=";", decimal=",")

    for form, sign in zip(forms, ".,", strict=True):
        texts = [text.replace(".", sign).encode() for text in (".25", "-.5", "5.", "0.75")]
        assert [float(row["v"]) for row in rows(form, {"v": kind}, *texts)] == [0.25, -0.5, 5, 0.75]
        assert refusal(form, {"v": kind}, sign.encode())[0] in ("wrong_type", "bad_decimal")


def test_csv_fields_are_named_by_columns_whatever_the_order_of_the_table() -> None:
    form = CsvFormat(columns=("b", "new", "a"), delimiter=";", quote="'", null="\\N")

    decoded = decode(form, {"a": "long", "b": "string", "c": "string"}, b"'x;y';z;1", b"\\N;;2\r\n")

    assert decoded.rows.to_pylist() == [{"a": 1, "b": "x;y", "c": None}, {"a": 2, "b": None, "c": None}]
    assert decoded.unknown == pa.schema([("new", pa.string())])


@pytest.mark.parametrize(
    ("payload", "code", "error"),
    [
        (b"", "empty_payload", "the payload is empty"),
        (b"1,caf\xe9", "not_utf8", "byte 6: 0xe9 is not UTF-8"),
        (b"1", "bad_fields", "expected 2 fields, got 1"),
        (b"1,2,3", "bad_fields", "expected 2 fields, got 3"),
        (b"\n", "bad_fields", "expected 2 fields, got 0"),
        (b"1,a\n2,b", "many_records", 'text after a line break that is not between " quotes'),
        (b'1,"a', "bad_csv", 'a field begins with " and never ends'),
        (b'1,"a"b', "bad_csv", 'text between a closing " and the end of its field'),
        (b",a", "missing_value", "n: expected long not null, got null"),
    ],
)
def test_a_csv_record_that_is_refused(payload: bytes, code: str, error: str) -> None:
    form = CsvFormat(columns=("n", "s"))

    assert refusal(form, {"n": "long not null", "s": "string"}, payload) == (code, error)


@pytest.mark.parametrize(
    ("kind", "text", "code", "error"),
    [
        ("long", "1.5", "wrong_type", "expected long, got 1.5"),
        ("long", "007", "wrong_type", 'expected long, got "007"'),
        ("long", " 1", "wrong_type", 'expected long, got " 1"'),
        ("byte", "300", "out_of_range", "expected byte (-128 to 127), got 300"),
        ("double", "1,5,5", "wrong_type", 'expected double, got "1,5,5"'),
        ("double", "NaN", "wrong_type", 'expected double, got "NaN"'),
        ("double", "1e400", "out_of_range", "expected double, got 1e400"),
        ("decimal(5,2)", "1.005", "bad_decimal", 'expected decimal(5,2), got "1.005"'),
        ("boolean", "yes", "wrong_type", 'expected boolean, got "yes"'),
        ("boolean", "tRUE", "wrong_type", 'expected boolean, got "tRUE"'),
        ("date", "15.11.2026", "bad_date", 'expected date as YYYY-MM-DD, got "15.11.2026"'),
        ("timestamp", "noon", "bad_timestamp", 'expected timestamp as RFC 3339 text, got "noon"'),
        (
            "timestamp",
            "1700000000",
            "bad_timestamp",
            "expected timestamp as RFC 3339 text, got 1700000000; declare timestamp(s) for epoch numbers",
        ),
        ("binary", "***", "bad_base64", 'expected binary as base64 text, got "***"'),
    ],
)
def test_a_csv_value_that_does_not_fit_its_column(kind: str, text: str, code: str, error: str) -> None:
    form = CsvFormat(columns=("v",), delimiter="|")

    assert refusal(form, {"v": kind}, text.encode()) == (code, f"v: {error}")


TEXTS = """
    0 -0 7 -129 127 9223372036854775807 9223372036854775808 1.5 1e2 1e-9 1e99 1e308 1e309 0.1 00.1 .5 +5 5.
    99999999.99 99999999.995 0.999 -0.5 007 123456789012345678901234567890.123 0.30000000000000004
    3.4028236e38 1E+2 --1 \u0663
"""
NUMBERS = st.sampled_from(TEXTS.split()) | st.floats(allow_nan=False).map(repr)


@settings(max_examples=25, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=20))
@pytest.mark.parametrize(
    "kind", ["long", "byte", "uint64", "double", "float", "decimal(10,2)", "decimal(3,3)", "timestamp(ms)"]
)
def test_a_csv_number_is_what_json_makes_of_it(kind: str, texts: list[str]) -> None:
    """A decimal may be a text in JSON; all other numbers must be numbers there, with a digit at both ends."""
    quote = '"' if kind.startswith("decimal") else ""
    with_zeros = {".5": "0.5", "5.": "5.0"} if kind in ("double", "float") else {}
    objects = [f'{{"v": {quote}{with_zeros.get(text, text)}{quote}}}'.encode() for text in texts]

    as_csv = decode(CsvFormat(columns=("v",)), {"v": kind}, *(text.encode() for text in texts))
    as_json = decode(JsonFormat(), {"v": kind}, *objects)

    assert as_csv.rows == as_json.rows
    assert [one.index for one in as_csv.refused] == [one.index for one in as_json.refused]


def test_options_are_checked_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  a: {type: generate, format: csv}
  b: {type: generate, format: {type: csv, columns: [a, A]}}
  c: {type: generate, format: {type: csv, columns: ["a b"], delimiter: "||"}}
  d: {type: generate, format: {type: csv, columns: [a], quote: ","}}
  e: {type: generate, format: {type: text, max_payload: 1MB}}
  f: {type: generate, format: {type: text, decompress: gz}}
tables:
  t: {path: lake/t, from: [a, b, c, d, e, f]}
"""
    )

    with pytest.raises(PipelineFileError) as error:
        load(file)

    assert str(error.value).replace(f"{file}:", "").splitlines() == [
        "3: sources.a.format: give either columns or `header: true`, which takes the names from each file",
        "4: sources.b.format.columns: names 'a' and 'A', which are one column in a table",
        "5: sources.c.format.columns.0: a column name may not contain a space; write 'a_b'",
        "5: sources.c.format.delimiter: expected one character that is no line break, got '||'",
        "6: sources.d.format: delimiter and quote are both ','; they must differ",
        "7: sources.e.format: max_payload has an effect only with `decompress`; add that, or remove "
        "max_payload",
        "8: sources.f.format.decompress: expected 'gzip' or 'zstd', got 'gz'",
    ]
