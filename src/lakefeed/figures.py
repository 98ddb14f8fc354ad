"""Numbers, sizes and times as people read them: `1.2M`, `340/s`, `4.8 MB`, `3 min`."""

from __future__ import annotations

import datetime as dt

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def short(number: float) -> str:
    """`950`, `12,300`, `1.2M`: exact as long as it is short."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(number) >= size:
            return f"{number / size:.1f}{unit}" if number / size < 100 else f"{number / size:.0f}{unit}"
    return f"{number:,.0f}"


def thousands(number: int | None) -> str:
    """`1,000`, or `?` where nobody knows."""
    return "?" if number is None else f"{number:,}"


def per_second(rate: float) -> str:
    """`0/s`, `0.4/s`, `1,200/s`."""
    return f"{rate:.1f}/s" if 0 < rate < 10 else f"{short(rate)}/s"


def readable_seconds(seconds: float) -> str:
    """How long something took: `<0.01 s`, `0.25 s`, `12.3 s`."""
    if seconds < 0.01:
        return "<0.01 s"
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"


def readable_size(size: int) -> str:
    """A size as people read it, rounded: `20 MB`, `4.8 MB`."""
    number, unit = float(size), "bytes"
    for larger in ("KB", "MB", "GB", "TB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{number:.1f} {unit}" if number < 10 and unit != "bytes" else f"{number:.0f} {unit}"


def ago(seconds: float) -> str:
    """How long something lasts or is ago: `<0.1 s`, `0.4 s`, `12 s`, `3 min`, `5 h`, `2 days`."""
    seconds = max(0.0, seconds)
    if seconds < 0.1:
        return "<0.1 s"
    if seconds < 1:
        return f"{seconds:.1f} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:,.0f} days"


WAITS = "the source waits for that"
"""What follows an error that somebody has to decide about while the run goes on."""


def trying_again(seconds: float, most: float) -> str:
    """What follows an error that has lasted for so long: `trying again for 9 min more`."""
    return f"trying again for {ago(most - seconds)} more"


def clock(moment: float) -> str:
    """`14:03:59`, in UTC."""
    return dt.datetime.fromtimestamp(moment, dt.UTC).strftime("%H:%M:%S")


def iso(moment: float) -> str:
    """`2026-11-15T14:03:59.120Z`."""
    text = dt.datetime.fromtimestamp(moment, dt.UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
