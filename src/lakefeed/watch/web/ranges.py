"""The time ranges that the charts of the page can go over."""

from __future__ import annotations

from lakefeed.watch.series import DAY, HOUR

RANGES = {
    "15m": (HOUR / 4, "the last 15 minutes"),
    "1h": (HOUR, "the last hour"),
    "6h": (6 * HOUR, "the last 6 hours"),
    "24h": (DAY, "the last 24 hours"),
}
"""Seconds and words by the name that stands in the address."""


def span_of(name: str) -> float:
    """The seconds of a range; an hour where there is none of that name."""
    return RANGES.get(name, RANGES["1h"])[0]


def range_text(span: float) -> str:
    """What a span is called: `the last hour`."""
    return next((text for seconds, text in RANGES.values() if seconds == span), RANGES["1h"][1])
