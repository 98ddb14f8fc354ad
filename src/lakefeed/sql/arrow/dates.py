"""Dates and timestamps, in UTC and in the calendar that Spark uses for all of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.sql.arrow import reasons
from lakefeed.sql.arrow.value import Function, Kernel, Value, column_of, failing, strict_errors
from lakefeed.sql.arrow.value import numbers as _numbers
from lakefeed.sql.expression import Call, Literal

SECOND = 1_000_000
DAY = 86_400 * SECOND


def _days(column: pa.Array) -> Any:
    """Days since 1970."""
    return _numbers(column, pa.int32()).astype(np.int64)


def _micros(column: pa.Array) -> Any:
    """Microseconds since 1970."""
    return _numbers(column, pa.int64())


def _months(days: Any) -> Any:
    """Months since 1970; numpy's calendar has no first and no last year."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_of(months: Any) -> Any:
    """The first day of months, in days since 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _weekday(days: Any) -> Any:
    """0 for Monday; 1970 began on a Thursday."""
    return (days + 3) % 7


def _day_of_year(days: Any) -> Any:
    return days - _first_of(_months(days) // 12 * 12) + 1


def _week(days: Any) -> Any:
    """The week that ISO counts: the one of its Thursday."""
    return (_day_of_year(days - _weekday(days) + 3) - 1) // 7 + 1


def _part(read: Callable[[pa.Array], Any], compute: Callable[[Any], Any]) -> Kernel:
    """The kernel of a function that gives a whole number for each date or timestamp."""

    def kernel(call: Call, values: Sequence[Value], rows: int) -> Value:
        made = compute(read(values[0].column(rows))).astype(call.type.to_pandas_dtype())
        return Value(column_of(made, values[0].given(rows), call.type, call.type), values[0].errors)

    return kernel


_of_days, _of_micros = partial(_part, _days), partial(_part, _micros)


def _shifted(sign: int) -> Kernel:
    def kernel(_: Call, values: Sequence[Value], rows: int) -> Value:
        start, by = (value.column(rows) for value in values)
        # Java's integers wrap here, in silence.
        made = (_days(start) + sign * _numbers(by, pa.int64())).astype(np.int32)
        valid = values[0].given(rows) & values[1].given(rows)
        return Value(column_of(made, valid, pa.int32(), pa.date32()), strict_errors(values, rows))

    return kernel


def _difference(_: Call, values: Sequence[Value], rows: int) -> Value:
    end, start = (value.column(rows) for value in values)
    made = (_days(end) - _days(start)).astype(np.int32)
    valid = values[0].given(rows) & values[1].given(rows)
    return Value(column_of(made, valid, pa.int32(), pa.int32()), strict_errors(values, rows))


def _epoch(unit: int) -> Kernel:
    """Numbers since 1970 that become timestamps."""

    def kernel(_: Call, values: Sequence[Value], rows: int) -> Value:
        found = _micros(values[0].column(rows))
        most = (2**63 - 1) // unit
        failed = (found > most) | (found < -((2**63) // unit))
        made = column_of(np.where(failed, 0, found) * unit, values[0].given(rows), pa.int64(), TIMESTAMP)
        return failing(made, failed, values[0].errors, reasons.long_overflow)

    return kernel


def _truncated_days(unit: str, days: Any) -> Any:
    if unit in ("year", "yyyy", "yy"):
        return _first_of(_months(days) // 12 * 12)
    if unit == "quarter":
        return _first_of(_months(days) // 3 * 3)
    if unit in ("month", "mm", "mon"):
        return _first_of(_months(days))
    return days - _weekday(days)


_UNITS = {
    "day": DAY,
    "dd": DAY,
    "hour": 3600 * SECOND,
    "minute": 60 * SECOND,
    "second": SECOND,
    "millisecond": 1000,
    "microsecond": 1,
}
_LONGER = frozenset(["year", "yyyy", "yy", "quarter", "month", "mm", "mon", "week"])


def _monday(days: Any) -> Any:
    """The Monday of a date's week, with integers that wrap as Java's do for the first dates of all."""
    before = (days - 7).astype(np.int32)
    return before + np.int64(1) + (np.fmod((3 - before.astype(np.int64)).astype(np.int32), 7) + 7) % 7


def _truncate_timestamp(call: Call, values: Sequence[Value], rows: int) -> Value:
    unit = _constant(call.given[0])
    found = _micros(values[1].column(rows))
    size = _UNITS.get(unit, DAY)
    units = found // size if unit in _UNITS else _truncated_days(unit, found // size)
    # The first timestamp of all lies in the middle of a day.
    failed = units < -(2**63 // size)
    made = column_of(np.where(failed, 0, units) * size, values[1].given(rows), pa.int64(), TIMESTAMP)
    return failing(made, failed, values[1].errors, reasons.long_overflow)


def _truncate_date(call: Call, values: Sequence[Value], rows: int) -> Value:
    unit = _constant(call.given[1])
    found = _days(values[0].column(rows))
    days = _monday(found) if unit == "week" else _truncated_days(unit, found)
    # Before the first date of all, Spark throws for a quarter only; the other units wrap in silence.
    failed = (days < -(2**31)) & (unit == "quarter")
    made = column_of(days.astype(np.int32), values[0].given(rows), pa.int32(), pa.date32())
    return failing(made, failed, values[0].errors, reasons.integer_overflow)


def _constant(expression: Any) -> str:
    return str(expression.value).lower() if isinstance(expression, Literal) and expression.value else ""


def _known_unit(call: Call) -> str | None:
    unit = _constant(call.given[0])
    return None if unit in _UNITS or unit in _LONGER else "date_trunc with another unit"


def _known_date_unit(call: Call) -> str | None:
    return None if _constant(call.given[1]) in _LONGER else "trunc with another unit"


def _whole_number(call: Call) -> str | None:
    return None if pa.types.is_integer(call.given[0].type) else f"{call.name} of a fraction"


_CONSTANT = "a constant unit"
FUNCTIONS = {
    "Year": Function("year, extract(year ...)", _of_days(lambda days: _months(days) // 12 + 1970)),
    "Quarter": Function("quarter", _of_days(lambda days: _months(days) % 12 // 3 + 1)),
    "Month": Function("month", _of_days(lambda days: _months(days) % 12 + 1)),
    "DayOfMonth": Function("day, dayofmonth", _of_days(lambda days: days - _first_of(_months(days)) + 1)),
    "DayOfYear": Function("dayofyear", _of_days(_day_of_year)),
    "DayOfWeek": Function("dayofweek", _of_days(lambda days: (_weekday(days) + 1) % 7 + 1)),
    "WeekDay": Function("weekday", _of_days(_weekday)),
    "WeekOfYear": Function("weekofyear", _of_days(_week)),
    "Hour": Function("hour", _of_micros(lambda micros: micros % DAY // (3600 * SECOND))),
    "Minute": Function("minute", _of_micros(lambda micros: micros % (3600 * SECOND) // (60 * SECOND))),
    "Second": Function("second", _of_micros(lambda micros: micros % (60 * SECOND) // SECOND)),
    "UnixDate": Function("unix_date", _of_days(lambda days: days)),
    "UnixSeconds": Function("unix_seconds", _of_micros(lambda micros: micros // SECOND)),
    "UnixMillis": Function("unix_millis", _of_micros(lambda micros: micros // 1000)),
    "UnixMicros": Function("unix_micros", _of_micros(lambda micros: micros)),
    "DateAdd": Function("date_add, date + days", _shifted(1)),
    "DateSub": Function("date_sub, date - days", _shifted(-1)),
    "DateDiff": Function("datediff", _difference),
    "SecondsToTimestamp": Function("timestamp_seconds", _epoch(SECOND), _whole_number, "whole numbers"),
    "MillisToTimestamp": Function("timestamp_millis", _epoch(1000)),
    "MicrosToTimestamp": Function("timestamp_micros", _epoch(1)),
    "TruncTimestamp": Function("date_trunc", _truncate_timestamp, _known_unit, _CONSTANT),
    "TruncDate": Function("trunc", _truncate_date, _known_date_unit, _CONSTANT),
}
