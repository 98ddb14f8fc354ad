"""Where the boxes, arrows and texts of the pipeline's drawing go; a template makes SVG of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakefeed.figures import per_second, short
from lakefeed.text import counted
from lakefeed.watch.view import RunView, SourceView, TableView
from lakefeed.watch.web.layers import has_layers, layered, said_of
from lakefeed.watch.web.shapes import Box, Drawing, Edge, Text, curve, spread, wrapped

_MANY = 14
"""With more tables than these, each gets a low row."""
_SOURCE_HEIGHT = 54.0
_GAP = 14.0
_LINE = 17.0
_NAME_WIDTH = 8.4
_SAID_WIDTH = 6.6
"""How wide a character is, more or less."""


@dataclass(frozen=True)
class _Frame:
    """Where things go: a wide drawing for a desk, a narrow one for a phone."""

    name: str
    width: float
    left: float
    right: float
    row: float

    @property
    def right_x(self) -> float:
        return self.width - self.right

    def edge(self, start: float, end: float, cls: str) -> Edge:
        return curve((self.left, start), (self.right_x, end), cls)


@dataclass(frozen=True)
class _Lines:
    """What stands in a box: a name in as many lines as it needs, and what is said of it beside or below."""

    name: list[str]
    said: str
    base: float
    below: tuple[str, ...] = ()

    @property
    def height(self) -> float:
        return self.base + _LINE * (len(self.name) - 1 + len(self.below))

    def texts(self, x: float, below_x: float, y: float, below_y: float) -> list[Text]:
        names = [Text(line, x, y + _LINE * at, "name") for at, line in enumerate(self.name)]
        first = below_y + _LINE * len(self.name)
        return names + [Text(line, below_x, first + _LINE * at, "said") for at, line in enumerate(self.below)]


def drawings(view: RunView) -> list[Drawing]:
    """The pipeline twice: a page shows the drawing that fits."""
    if has_layers(view):
        return layered(view)
    row = 20 if len(view.tables) > _MANY else 44
    return [
        _draw(view, _Frame("wide", 960, 230, 300, row)),
        _draw(view, _Frame("narrow", 390, 132, 176, row)),
    ]


def _draw(view: RunView, frame: _Frame) -> Drawing:
    sources = [_source_lines(frame, one) for one in view.sources]
    tables = [_table_lines(frame, one) for one in view.tables]
    room = max(_needed(tables, 4.0 if frame.row < 40 else 12.0), _needed(sources, _GAP))
    sources_at = spread([one.height for one in sources], room)
    tables_at = spread([one.height for one in tables], room)
    starts = _middles(view.sources, sources, sources_at)
    ends = _middles(view.tables, tables, tables_at)
    dead_letters_at = room + 22
    to_dead_letters = dead_letters_at + frame.row / 2
    return Drawing(
        name=frame.name,
        width=frame.width,
        height=dead_letters_at + frame.row + 4,
        label=f"{counted(len(view.sources), 'source')} into {counted(len(view.tables), 'table')}",
        edges=[frame.edge(starts[flow.source], ends[flow.table], flow.state) for flow in view.flows]
        + [
            frame.edge(
                starts[one.name], to_dead_letters, f"letters {'moving' if one.dead_letter_rate else 'still'}"
            )
            for one in view.sources
            if one.dead_letters
        ],
        boxes=[
            *(_source(frame, *each) for each in zip(view.sources, sources, sources_at, strict=True)),
            *(_table(frame, *each) for each in zip(view.tables, tables, tables_at, strict=True)),
            _dead_letters(frame, view, dead_letters_at),
        ],
        rates=_rates(frame, view, ends),
    )


def _source_lines(frame: _Frame, source: SourceView) -> _Lines:
    said = said_of(source)
    name = wrapped(source.name, int((frame.left - 46) / _NAME_WIDTH))
    below = tuple(wrapped(f"{source.kind} · {said}", int((frame.left - 28) / _SAID_WIDTH)))
    return _Lines(name, said, _SOURCE_HEIGHT - _LINE, below)


def _table_lines(frame: _Frame, table: TableView) -> _Lines:
    said = "refused" if table.stopped else "not yet" if table.version is None else _rows(frame, table)
    room = int((frame.right - 52) / _NAME_WIDTH)
    if len(table.name) + len(said) < room or frame.width > 500:
        return _Lines(wrapped(table.name, max(6, room - len(said))), said, frame.row)
    return _Lines(wrapped(table.name, room), said, frame.row, (said,))


def _rows(frame: _Frame, table: TableView) -> str:
    if frame.row < 40:
        return per_second(table.rate)
    rows = short(table.rows)
    return rows if frame.width < 500 else f"{rows} {'row' if table.rows == 1 else 'rows'}"


def _needed(boxes: list[_Lines], gap: float) -> float:
    return sum(one.height + gap for one in boxes)


def _middles(
    views: Sequence[SourceView | TableView], boxes: list[_Lines], begin: list[float]
) -> dict[str, float]:
    return {one.name: at + box.height / 2 for one, box, at in zip(views, boxes, begin, strict=True)}


def _rates(frame: _Frame, view: RunView, middles: dict[str, float]) -> list[Text]:
    """A low row, and a narrow drawing, have no room for them."""
    if frame.width < 500 or frame.row < 40:
        return []
    return [
        Text(per_second(one.rate), frame.right_x - 12, middles[one.name] - 7, "rate")
        for one in view.tables
        if not one.stopped
    ]


def _source(frame: _Frame, source: SourceView, lines: _Lines, y: float) -> Box:
    title = f"source {source.name} ({source.kind}): {source.trouble or source.stopped or lines.said}"
    texts = lines.texts(32, 14, y + 24, y + 26)
    return Box(title, source.state, 1, y, frame.left - 2, lines.height, texts, dot=(18, y + 19))


def _table(frame: _Frame, table: TableView, lines: _Lines, y: float) -> Box:
    x, first = frame.right_x, y + frame.row / 2 + 4.5
    title = f"table {table.name}: {table.stopped or table.trouble or table.refusing or lines.said}"
    texts = lines.texts(x + 30, x + 30, first, first)
    if not lines.below:
        texts.append(Text(lines.said, x + frame.right - 14, first, "said end"))
    return Box(title, table.state, x, y, frame.right - 2, lines.height, texts, dot=(x + 17, first - 4.5))


def _dead_letters(frame: _Frame, view: RunView, y: float) -> Box:
    x, middle = frame.right_x, y + frame.row / 2 + 4.5
    state, title = "letters" if view.dead_letters else "new", f"dead letters: {view.dead_letter_table.path}"
    name = Text("new dead letters", x + 14, middle, "name")
    count = Text(short(view.dead_letters), x + frame.right - 14, middle, "said end")
    return Box(title, state, x, y, frame.right - 2, frame.row, [name, count])
