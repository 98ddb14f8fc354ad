"""The boxes, arrows and texts of a drawing; a template makes SVG of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Text:
    """A line of text; `cls` is its class in the style sheet."""

    said: str
    x: float
    y: float
    cls: str


@dataclass(frozen=True)
class Edge:
    """An arrow from a source to a table."""

    line: str
    cls: str


@dataclass(frozen=True)
class Box:
    """A source, a table, or the dead letters."""

    title: str
    state: str
    x: float
    y: float
    width: float
    height: float
    texts: list[Text]
    dot: tuple[float, float] | None = None


@dataclass(frozen=True)
class Drawing:
    """The pipeline in one width."""

    name: str
    width: float
    height: float
    label: str
    edges: list[Edge]
    boxes: list[Box]
    rates: list[Text]
    """What flows into each table, written on its arrow."""


def curve(start: tuple[float, float], end: tuple[float, float], cls: str, bend: float = 0.0) -> Edge:
    """An arrow from one point to another on its right, which bends at least so much."""
    (left, first), (right, last) = start, end
    bend = max(bend, (right - left) / 2)
    control = f"{left + bend:.0f} {first:.1f} {right - bend:.0f} {last:.1f}"
    return Edge(f"M{left:.0f} {first:.1f}C{control} {right:.0f} {last:.1f}", f"edge {cls}")


def spread(heights: list[float], room: float) -> list[float]:
    """Where boxes of these heights begin that are spread evenly over a room."""
    free = (room - sum(heights)) / max(1, len(heights))
    above = accumulate(heights[:-1], initial=0.0)
    return [free * (at + 0.5) + height for at, height in enumerate(above)] if heights else []


def wrapped(text: str, room: int) -> list[str]:
    """A text in lines of at most `room` characters, parted behind a sign where there is one."""
    lines = []
    while len(text) > room:
        at = max(text.rfind(sign, 0, room) for sign in "_-./ ") + 1
        at = at if at > room // 3 else room
        lines.append(text[:at].rstrip(" "))
        text = text[at:]
    return [*lines, text]
