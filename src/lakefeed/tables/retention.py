"""How long a table promises to keep what its newest version no longer needs."""

from __future__ import annotations

import re
from collections.abc import Mapping

DELETED_FILES = "delta.deletedFileRetentionDuration"
LOG_ENTRIES = "delta.logRetentionDuration"

DAY = 86_400.0
_DEFAULTS = {DELETED_FILES: 7 * DAY, LOG_ENTRIES: 30 * DAY}
_UNITS = {
    "millisecond": 0.001,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3_600.0,
    "day": DAY,
    "week": 7 * DAY,
}
_PART = re.compile(r"(\d+)\s*(millisecond|second|minute|hour|day|week)s?\b")


def retention(properties: Mapping[str, str], name: str) -> float:
    """Seconds of one of the two retention properties, by default Delta's own: 7 days, and 30 for the log."""
    text = properties.get(name)
    return _DEFAULTS[name] if text is None else interval_seconds(text)


def interval_seconds(text: str) -> float:
    """Seconds of `interval 7 days` or `interval 1 week 12 hours`; ValueError for anything else."""
    rest = text.strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(rest)
    if not parts or _PART.sub("", rest).strip(" ,"):
        raise ValueError(f"expected an interval such as 'interval 7 days', got {text!r}")
    return sum(int(number) * _UNITS[unit] for number, unit in parts)
