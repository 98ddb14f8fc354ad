"""The time ranges that the charts of the page can go over."""

from __future__ import annotations

from lakefeed.watch.series import DAY, HOUR
from lakefeed.watch.web.markup import Markup, tag

_RANGES = {
    "15m": (HOUR / 4, "the last 15 minutes"),
    "1h": (HOUR, "the last hour"),
    "6h": (6 * HOUR, "the last 6 hours"),
    "24h": (DAY, "the last 24 hours"),
}


def span_of(name: str) -> float:
    """The seconds of a range; an hour where there is none of that name."""
    return _RANGES.get(name, _RANGES["1h"])[0]


def range_text(span: float) -> str:
    """What a span is called: `the last hour`."""
    return next((text for seconds, text in _RANGES.values() if seconds == span), _RANGES["1h"][1])


def range_links(span: float) -> Markup:
    """A link for each range; plain links, which need no script."""
    links = [
        tag("a", name, href=f"?range={name}", title=text, aria_current="true" if seconds == span else None)
        for name, (seconds, text) in _RANGES.items()
    ]
    return tag("nav", *links, cls="ranges", aria_label="time range of the charts")
