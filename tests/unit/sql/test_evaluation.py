"""Expressions on Arrow: conditions are evaluated as far as Spark does, and rows that throw are told."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakefeed.sql.compilation import unsupported
from lakefeed.sql.evaluation import evaluate_rows
from lakefeed.sql.expression import Call, Column, Expression, Literal

NUMBER, TEXT, WHOLE = Column(pa.float64(), "number"), Column(pa.string(), "text"), Column(pa.int32(), "whole")
ROWS = pa.RecordBatch.from_pydict(
    {
        "number": pa.array([1.0, 0.0, None, float("nan"), -0.0]),
        "text": pa.array(["7", "x", None, " 8 ", "+9"]),
        "whole": pa.array([1, 0, None, 2**31 - 1, -(2**31)], pa.int32()),
    }
)
ANSI = (("mode", "ANSI"),)


def call(function: str, *given: Expression, kind: pa.DataType | None = None, options: Any = ()) -> Call:
    return Call(kind or given[0].type, function, function.lower(), given, options)


def number(value: float | None) -> Literal:
    return Literal(pa.float64(), value)


def divided() -> Call:
    return call("Divide", number(10.0), NUMBER, options=ANSI)


def as_int(expression: Expression) -> Call:
    return call("Cast", expression, kind=pa.int32(), options=ANSI)


def evaluate(expression: Expression, rows: pa.RecordBatch) -> pa.Array:
    """The values of an expression that throws for no row."""
    (values,), errors = evaluate_rows([expression], rows)
    assert errors == {}
    return values


def is_zero() -> Call:
    return call("EqualTo", NUMBER, number(0.0), kind=pa.bool_())


def test_rows_that_throw_are_told_with_the_words_of_spark_and_the_others_computed() -> None:
    (values,), errors = evaluate_rows([as_int(TEXT)], ROWS)

    assert [values[row].as_py() for row in (0, 2, 3, 4)] == [7, None, 8, 9]
    assert list(errors) == [1]
    code, message = errors[1]
    assert code == "CAST_INVALID_INPUT"
    assert message.startswith(
        'The value \'x\' of the type "STRING" cannot be cast to "INT" because it is malformed.'
    )


def test_the_first_expression_that_throws_gives_the_reason() -> None:
    _, errors = evaluate_rows([divided(), as_int(TEXT)], ROWS)

    assert {row: code for row, (code, _) in errors.items()} == {1: "DIVIDE_BY_ZERO", 4: "DIVIDE_BY_ZERO"}


def test_try_gives_null_where_spark_would_throw() -> None:
    tried = call("Cast", TEXT, kind=pa.int32(), options=(("mode", "TRY"),))

    assert evaluate(tried, ROWS).to_pylist() == [7, None, None, 8, 9]


def test_a_branch_that_is_not_taken_does_not_throw() -> None:
    case = call("CaseWhen", is_zero(), number(-1.0), divided(), kind=pa.float64())
    tested = call("And", call("Not", is_zero()), call("GreaterThan", divided(), number(0.0), kind=pa.bool_()))
    either = call("Or", is_zero(), call("GreaterThan", divided(), number(0.0), kind=pa.bool_()))
    first = call("Coalesce", NUMBER, divided())

    for expression in (case, tested, either, first):
        assert evaluate_rows([expression], ROWS)[1] == {}
    swapped = call(
        "And", call("GreaterThan", divided(), number(0.0), kind=pa.bool_()), call("Not", is_zero())
    )
    assert sorted(evaluate_rows([swapped], ROWS)[1]) == [1, 4]


def test_the_second_operand_is_not_evaluated_where_the_first_is_null() -> None:
    failing = as_int(TEXT)
    added = call("Add", Literal(pa.int32(), None), failing, options=ANSI)

    (values,), errors = evaluate_rows([added], ROWS)

    assert errors == {}
    assert values.null_count == len(ROWS.column("text"))


def test_nan_equals_itself_and_is_the_largest_and_zeros_are_equal() -> None:
    nan, zero = number(float("nan")), number(0.0)

    assert evaluate(call("EqualTo", NUMBER, nan, kind=pa.bool_()), ROWS).to_pylist() == [
        False,
        False,
        None,
        True,
        False,
    ]
    assert evaluate(call("EqualTo", NUMBER, zero, kind=pa.bool_()), ROWS).to_pylist() == [
        False,
        True,
        None,
        False,
        True,
    ]
    greater = call("GreaterThan", NUMBER, number(1e308), kind=pa.bool_())
    assert evaluate(greater, ROWS).to_pylist() == [False, False, None, True, False]


def test_integers_overflow_with_an_error() -> None:
    one = Literal(pa.int32(), 1)

    (values,), errors = evaluate_rows([call("Add", WHOLE, one, options=ANSI)], ROWS)

    assert [values[row].as_py() for row in (0, 1, 2, 4)] == [2, 1, None, -(2**31) + 1]
    assert {row: code for row, (code, _) in errors.items()} == {3: "ARITHMETIC_OVERFLOW"}


def test_the_third_truth_value_is_kept() -> None:
    unknown, yes, no = (Literal(pa.bool_(), value) for value in (None, True, False))
    rows = ROWS.slice(0, 1)

    for function, left, right, result in [
        ("And", unknown, no, False),
        ("And", unknown, yes, None),
        ("Or", unknown, yes, True),
        ("Or", no, unknown, None),
    ]:
        assert evaluate(call(function, left, right), rows).to_pylist() == [result]
    listed = call("In", WHOLE, Literal(pa.int32(), 1), Literal(pa.int32(), None), kind=pa.bool_())
    assert evaluate(listed, ROWS).to_pylist() == [True, None, None, None, None]


def test_no_rows_give_no_values() -> None:
    values, errors = evaluate_rows([divided(), as_int(TEXT), is_zero()], ROWS.slice(0, 0))

    assert [len(one) for one in values] == [0, 0, 0]
    assert errors == {}


def test_what_arrow_does_not_have_is_named() -> None:
    unknown = call("RegExpExtract", TEXT)
    assert unsupported(call("Not", call("IsNull", unknown, kind=pa.bool_()))) == (
        "regexpextract is not to be had in Arrow exactly as Spark means it"
    )
    floats = call("Cast", NUMBER, kind=pa.decimal128(10, 2), options=ANSI)
    assert str(unsupported(floats)).startswith("cast from double to decimal(10,2) ")
    assert unsupported(divided()) is None


def test_a_short_text_with_a_huge_exponent_costs_neither_memory_nor_a_long_reason() -> None:
    texts = ["1e999999999", "-1e100000000", "1e-100000000", "1e-999999999", "1e99999999999999999999", "0e99"]
    rows = pa.RecordBatch.from_pydict({"text": pa.array(texts)})
    money = pa.decimal128(10, 2)

    (values,), errors = evaluate_rows([call("Cast", TEXT, kind=money, options=ANSI)], rows)
    (tried,), left = evaluate_rows([call("Cast", TEXT, kind=money, options=(("mode", "TRY"),))], rows)

    assert values[2].as_py() == tried[2].as_py() == 0
    assert {row: code for row, (code, _) in errors.items()} == {
        0: "NUMERIC_OUT_OF_SUPPORTED_RANGE",
        1: "NUMERIC_OUT_OF_SUPPORTED_RANGE",
        3: "ARITHMETIC_OVERFLOW",
        4: "CAST_INVALID_INPUT",
        5: "NUMERIC_OUT_OF_SUPPORTED_RANGE",
    }
    assert errors[0][1] == (
        "The value 1e999999999 cannot be interpreted as a numeric since it has more than 38 digits."
    )
    assert list(left) == [3]
    assert [tried[row].as_py() for row in (0, 1, 4, 5)] == [None] * 4


def test_an_exponent_with_many_leading_zeros_is_read_in_one_pass() -> None:
    zeros = "0" * 1_000_000
    texts = [f"1e{zeros}5", f"1e-{zeros}1", "1e" + "\u0660" * 1_000_000 + "\u0665", f"1e{zeros}"]
    rows = pa.RecordBatch.from_pydict({"text": pa.array(texts)})

    values = evaluate(call("Cast", TEXT, kind=pa.decimal128(10, 2), options=ANSI), rows)

    assert list(map(str, values.to_pylist())) == ["100000.00", "0.10", "100000.00", "1.00"]


def test_decimals_that_arrow_divides_wrongly_are_rounded_and_cut_off_correctly() -> None:
    given = ["-2147483647.999999999999999999", "-9223372036854775807.999999999999999999", "4294967295.9999"]
    wide = Column(pa.decimal128(38, 18), "wide")
    rows = pa.RecordBatch.from_pydict({"wide": pa.array(map(Decimal, given), wide.type)})

    rounded = evaluate(call("Cast", wide, kind=pa.decimal128(30, 3), options=ANSI), rows)
    whole = evaluate(call("Cast", wide, kind=pa.int64(), options=ANSI), rows)

    assert list(map(str, rounded.to_pylist())) == [
        "-2147483648.000",
        "-9223372036854775808.000",
        "4294967296.000",
    ]
    assert whole.to_pylist() == [-2147483647, -9223372036854775807, 4294967295]


def test_a_list_that_is_the_same_in_each_row_has_no_values_without_rows() -> None:
    names = Literal(pa.list_(pa.string()), ["a"])

    assert evaluate(names, ROWS).to_pylist() == [["a"]] * 5
    assert evaluate(names, ROWS.slice(0, 0)).to_pylist() == []
