"""The boxes, arrows and texts of a drawing; a template makes SVG of them."""

from __future__ import annotations

from dataclasses import dataclass


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


def wrapped(text: str, room: int) -> list[str]:
    """A text in lines of at most `room` characters, parted behind a sign where there is one."""
    lines = []
    while len(text) > room:
        at = max(text.rfind(sign, 0, room) for sign in "_-./ ") + 1
        at = at if at > room // 3 else room
        lines.append(text[:at].rstrip(" "))
        text = text[at:]
    return [*lines, text]
