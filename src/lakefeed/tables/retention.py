"""How long a table promises to keep files that were removed from it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakefeed.errors import TableError

PROPERTY = "delta.deletedFileRetentionDuration"
_WEEK = 7 * 86400.0
_SECONDS = {
    "nanosecond": 1e-9,
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": _WEEK,
}
_INTERVAL = re.compile(r"(?:interval)?((?:\s*\d+\s*[a-z]+)+)\s*", re.IGNORECASE)


def deleted_file_retention(properties: Mapping[str, str | None]) -> float:
    """Seconds for which removed files are promised to readers: the table's property, else a week."""
    text = properties.get(PROPERTY)
    return _WEEK if text is None else interval_seconds(text)


def interval_seconds(text: str) -> float:
    """Seconds of an interval as Delta writes it: `interval 1 week`, `interval 2 days 12 hours`."""
    match = _INTERVAL.fullmatch(text.strip())
    total = 0.0
    for number, unit in re.findall(r"(\d+)\s*([a-z]+)", match[1].lower()) if match else ():
        if unit.removesuffix("s") not in _SECONDS:
            break
        total += int(number) * _SECONDS[unit.removesuffix("s")]
    else:
        if match:
            return total
    raise TableError(
        f"{PROPERTY} is {text!r}, which is no interval such as 'interval 7 days'.\nCorrect the property."
    )
