"""Dates and timestamps as text: one by one, and whole columns at once with the same outcome.

A timestamp is an RFC 3339 date-time. A space or `t` may stand for `T`, the offset may be short (`+02`,
`+0200`), digits after the microseconds are cut off, and without a zone it is UTC; a bare date is its
midnight. Only years 1 to 9999 (in UTC) are good, and there is no second 60.
"""

from __future__ import annotations

import re
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.formats.fit.doubt import Doubt, new_nulls

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d+))?"
    r"(?:[Zz]|([+-])([01]\d|2[0-3])(?::?([0-5]\d))?)?)?",
    re.ASCII,
)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_ZONED = re.compile(r".{10}[Tt ].{8}(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)

_DAY = r"^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_CLOCK = r"[Tt ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
_ZONE = r"(?:[Zz]|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?"
_ODD_DAY = r"^\d{4}-(?:02-(?:29|3\d)|(?:04|06|09|11)-31)"
_MICROSECONDS = 26  # characters of a date-time up to its sixth fraction digit

_DATE_LENGTH = len("2026-11-15")
_EPOCH = date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
FIRST_DAY, LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
FIRST_US, LAST_US = FIRST_DAY * _DAY_US, (LAST_DAY + 1) * _DAY_US - 1
# On the first and the last day the offset decides whether the text is good: these are left to `timestamp_us`.
_SURE_US = FIRST_US + _DAY_US, LAST_US - _DAY_US


def timestamp_us(text: str) -> int | None:
    """Microseconds since 1970 in UTC, possibly beyond the years 1 to 9999; None if it is no timestamp."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, zone_hour, zone_minute = match.groups("0")
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError:
        return None
    seconds = (days * 24 + int(hour)) * 3600 + int(minute) * 60 + int(second)
    offset = int(zone_hour) * 3600 + int(zone_minute) * 60
    seconds += offset if sign == "-" else -offset
    return seconds * 1_000_000 + int(fraction[:6].ljust(6, "0"))


def date_days(text: str) -> int | None:
    """Days since 1970; None if it is no date."""
    match = _DATE.fullmatch(text)
    try:
        return date(*map(int, match.groups())).toordinal() - _EPOCH if match else None
    except ValueError:
        return None


def midnight_days(text: str) -> int | None:
    """Days since 1970 of a date, or of a timestamp at midnight UTC; None if it is neither."""
    days = date_days(text)
    if days is not None or len(text) <= _DATE_LENGTH:
        return days
    microseconds = timestamp_us(text)
    if microseconds is None or microseconds % _DAY_US or not FIRST_US <= microseconds <= LAST_US:
        return None
    return microseconds // _DAY_US


def is_zoned(text: str) -> bool:
    """Whether this is a full RFC 3339 date-time with a zone: what makes a new column a timestamp."""
    if _ZONED.fullmatch(text) is None:
        return False
    microseconds = timestamp_us(text)
    return microseconds is not None and FIRST_US <= microseconds <= LAST_US


def dates(texts: pa.StringArray) -> tuple[pa.Array, Doubt]:
    """A column of dates, with null where the text is in doubt."""
    try:
        days = texts.cast(pa.date32())
    except pa.ArrowInvalid:
        days = _without_odd_days(_only(texts, _DAY + "$")).cast(pa.date32())
    return _within(days, FIRST_DAY, LAST_DAY, texts)


def timestamps(texts: pa.StringArray) -> tuple[pa.Array, Doubt]:
    """A column of timestamps, with null where the text is in doubt."""
    for kind in (TIMESTAMP, pa.timestamp("us")):
        stamps = _cast(texts, kind)
        if stamps is None:
            continue
        # Arrow also takes clocks without seconds, which RFC 3339 does not.
        full = _has_seconds(texts)
        if full is not None:
            stamps = pc.if_else(pa.array(full), stamps, None)
        return _within(stamps.view(TIMESTAMP), *_SURE_US, texts)
    stamps = _cast_cut(_cut(_only(texts, f"{_DAY}(?:{_CLOCK}{_ZONE})?$")))
    return _within(stamps, *_SURE_US, texts)


def _cast(texts: pa.StringArray, kind: pa.DataType) -> pa.Array | None:
    """The cast column, or None. A few are tried first, since Arrow makes an error of each text that fails."""
    few = [texts.slice(start, 8) for start in (0, len(texts) // 2, max(0, len(texts) - 8))]
    try:
        pa.concat_arrays(few).cast(kind)
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return None


def _within(column: pa.Array, low: int, high: int, given: pa.Array) -> tuple[pa.Array, Doubt]:
    numbers = column.view(pa.int32() if column.type == pa.date32() else pa.int64())
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is not None and (ends["min"] < low or ends["max"] > high):
        inside = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
        column = pc.if_else(inside, column, None)
    return column, new_nulls(column, given)


def _has_seconds(texts: pa.StringArray) -> Doubt:
    """Which parsed texts are a date or have a colon before the seconds; None if all of them."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(offsets)
    content = np.frombuffer(texts.buffers()[2] or b"\0", np.uint8)
    colon = content[np.minimum(offsets[:-1] + 16, len(content) - 1)] == ord(":")
    full = ((lengths >= 19) & colon) | (lengths == 10)
    if texts.null_count:
        full |= texts.is_null().to_numpy(zero_copy_only=False)
    return None if full.all() else full


def _only(texts: pa.StringArray, pattern: str) -> pa.StringArray:
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, None)


def _without_odd_days(texts: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pc.match_substring_regex(texts, _ODD_DAY), None, texts)


def _cut(texts: pa.StringArray) -> pa.StringArray:
    """Well-shaped timestamps in the one shape that Arrow casts: `T`, at most six digits, a zone."""
    if pc.all(pc.match_substring_regex(texts, "^.{10}[T ].*Z$")).as_py():
        return pc.utf8_replace_slice(texts, _MICROSECONDS, -1, "")
    texts = pc.replace_substring_regex(texts, r"^(.{10})$", r"\1T00:00:00Z")
    texts = pc.replace_substring_regex(texts, r"^(.{10})[Tt ](.{8}(?:\.\d{1,6})?)\d*[Zz]?$", r"\1T\2Z")
    return pc.replace_substring_regex(texts, r"^(.{10})[Tt ](.{8}(?:\.\d{1,6})?)\d*([+-][\d:]+)$", r"\1T\2\3")


def _cast_cut(texts: pa.StringArray) -> pa.Array:
    try:
        return texts.cast(TIMESTAMP)
    except pa.ArrowInvalid:
        return _without_odd_days(texts).cast(TIMESTAMP)
