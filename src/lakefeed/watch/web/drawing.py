"""The pipeline as a drawing, and small charts: SVG without anything from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from lakefeed.figures import per_second, short
from lakefeed.text import counted
from lakefeed.watch.view import FlowView, RunView, SourceView, TableView
from lakefeed.watch.web.markup import Markup, join, tag

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

    width: float
    left: float
    right: float
    row: float

    @property
    def right_x(self) -> float:
        return self.width - self.right


def chart(points: list[float], label: str, cls: str = "spark") -> Markup:
    """A line over the last hour, or since the beginning of the run, with its area below."""
    line = _line(tuple(points))
    return Markup(
        f'<svg class="{cls}" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" '
        f'aria-label="{join(label)}"><path d="{line}L100 24L0 24Z" class="area"></path>'
        f'<path d="{line}" class="line"></path></svg>'
    )


@lru_cache(maxsize=512)
def _line(points: tuple[float, ...]) -> str:
    """Points change every ten seconds, and are looked at more often than that."""
    top = max([*points, 1e-9])
    step = 100 / max(1, len(points) - 1)
    places = [f"{at * step:.1f} {22 - 20 * value / top:.1f}" for at, value in enumerate(points)]
    return "M" + "L".join(places) if len(places) > 1 else "M0 22L100 22"


def drawing(view: RunView) -> Markup:
    """The pipeline twice: CSS shows the one that fits."""
    many = len(view.tables) > _MANY
    wide = _Frame(width=960, left=230, right=300, row=20 if many else 44)
    narrow = _Frame(width=390, left=132, right=176, row=20 if many else 44)
    return join(_draw(view, wide, "drawing wide"), _draw(view, narrow, "drawing narrow"))


def _draw(view: RunView, frame: _Frame, cls: str) -> Markup:
    sources = [_source_lines(frame, one) for one in view.sources]
    tables = [_table_lines(frame, one) for one in view.tables]
    letters = _Lines(["new dead letters"], short(view.dead_letters), frame.row, beside=True)
    needed = (_needed(tables, _gap(frame)), _needed(sources, _GAP))
    room = max(needed)
    sources_at = _spread([one.height for one in sources], room)
    tables_at = _spread([one.height for one in tables], room)
    middles = {
        one.name: at + lines.height / 2
        for one, lines, at in zip(view.sources, sources, sources_at, strict=True)
    }
    rows_at = {
        one.name: at + lines.height / 2 for one, lines, at in zip(view.tables, tables, tables_at, strict=True)
    }
    letters_at = room + 22
    end = letters_at + letters.height / 2
    return tag(
        "svg",
        *(_edge(frame, flow, middles[flow.source], rows_at[flow.table]) for flow in view.flows),
        *(_letter_edge(frame, one, middles[one.name], end) for one in view.sources if one.letters),
        *(_source(frame, *each) for each in zip(view.sources, sources, sources_at, strict=True)),
        *(_table(frame, *each) for each in zip(view.tables, tables, tables_at, strict=True)),
        *(_rate(frame, one, rows_at[one.name]) for one in view.tables),
        _letters(frame, view, letters, letters_at),
        cls=cls,
        viewBox=f"0 0 {frame.width:.0f} {letters_at + letters.height + 4:.0f}",
        role="img",
        aria_label=f"{counted(len(view.sources), 'source')} into {counted(len(view.tables), 'table')}",
    )


@dataclass(frozen=True)
class _Lines:
    """What stands in a box: a name in as many lines as it needs, and what is said of it beside or below."""

    name: list[str]
    said: str
    base: float
    beside: bool
    below: tuple[str, ...] = ()

    @property
    def height(self) -> float:
        return self.base + _LINE * (len(self.name) - 1 + len(self.below))


def wrapped(text: str, room: int) -> list[str]:
    """A text in lines of at most `room` characters, parted behind a sign where there is one."""
    lines = []
    while len(text) > room:
        at = max(text.rfind(sign, 0, room) for sign in "_-./ ") + 1
        at = at if at > room // 3 else room
        lines.append(text[:at].rstrip(" "))
        text = text[at:]
    return [*lines, text]


def _source_lines(frame: _Frame, source: SourceView) -> _Lines:
    said = _said_of(source)
    name = wrapped(source.name, int((frame.left - 46) / _NAME_WIDTH))
    below = tuple(wrapped(f"{source.kind} · {said}", int((frame.left - 28) / _SAID_WIDTH)))
    return _Lines(name, said, _SOURCE_HEIGHT - _LINE, beside=False, below=below)


def _said_of(source: SourceView) -> str:
    if source.stopped or source.trouble:
        return "stopped" if source.stopped else "does not answer"
    return f"{per_second(source.rate)} · lag {short(source.lag)}" if source.lag is not None else "starting"


def _table_lines(frame: _Frame, table: TableView) -> _Lines:
    said = "refused" if table.stopped else "not yet" if table.version is None else _rows(frame, table)
    room = int((frame.right - 52) / _NAME_WIDTH)
    beside = len(table.name) + len(said) < room or frame.width > 500
    name = wrapped(table.name, max(6, room - len(said)) if beside else room)
    return _Lines(name, said, frame.row, beside, () if beside else (said,))


def _needed(boxes: list[_Lines], gap: float) -> float:
    return sum(one.height + gap for one in boxes)


def _gap(frame: _Frame) -> float:
    return 4.0 if frame.row < 40 else 12.0


def _spread(heights: list[float], room: float) -> list[float]:
    """Where boxes begin that are spread evenly over a room."""
    free = (room - sum(heights)) / max(1, len(heights))
    found, at = [], free / 2
    for height in heights:
        found.append(at)
        at += height + free
    return found


def _curve(frame: _Frame, start: float, end: float) -> str:
    left, right = frame.left, frame.right_x
    bend = (right - left) / 2
    control = f"{left + bend:.0f} {start:.1f} {right - bend:.0f} {end:.1f}"
    return f"M{left:.0f} {start:.1f}C{control} {right:.0f} {end:.1f}"


def _edge(frame: _Frame, flow: FlowView, start: float, end: float) -> Markup:
    state = "broken" if not flow.up else "moving" if flow.rate > 0 else "still"
    return _path(_curve(frame, start, end), f"edge {state}")


def _rate(frame: _Frame, table: TableView, middle: float) -> Markup:
    """What flows into a table, written on its arrow; a low row has no room for it."""
    if frame.width < 500 or frame.row < 40 or table.stopped:
        return Markup("")
    return _text(per_second(table.rate), frame.right_x - 12, middle - 7, "rate")


def _letter_edge(frame: _Frame, source: SourceView, start: float, end: float) -> Markup:
    state = "moving" if source.letter_rate else "still"
    return _path(_curve(frame, start, end), f"edge letters {state}")


def _box(x: float, y: float, width: float, height: float, cls: str) -> Markup:
    handle = f'x="{x:.1f}" y="{y:.1f}" width="{width - 2:.0f}" height="{height:.0f}"'
    return Markup(f'<rect {handle} rx="9" class="box {cls}"></rect>')


def _text(said: str, x: float, y: float, cls: str) -> Markup:
    return Markup(f'<text x="{x:.0f}" y="{y:.1f}" class="{cls}">{join(said)}</text>')


def _path(line: str, cls: str) -> Markup:
    return Markup(f'<path d="{line}" class="{cls}"></path>')


def _source(frame: _Frame, source: SourceView, lines: _Lines, y: float) -> Markup:
    state = "down" if source.stopped or source.trouble else "up" if source.seen_at else "new"
    told = source.trouble or source.stopped or lines.said
    return tag(
        "g",
        tag("title", f"source {source.name} ({source.kind}): {told}"),
        _box(1, y, frame.left, lines.height, state),
        _dot(18, y + 19, state),
        *(_text(line, 32, y + 24 + _LINE * at, "name") for at, line in enumerate(lines.name)),
        *(
            _text(line, 14, y + 26 + _LINE * (len(lines.name) + at), "said")
            for at, line in enumerate(lines.below)
        ),
        cls=f"node {state}",
    )


def _table(frame: _Frame, table: TableView, lines: _Lines, y: float) -> Markup:
    state, x = table.state, frame.right_x
    first = y + frame.row / 2 + 4.5
    beside = [_text(lines.said, x + frame.right - 14, first, "said end")] if lines.beside else []
    return tag(
        "g",
        tag("title", f"table {table.name}: {table.stopped or table.trouble or table.refusing or lines.said}"),
        _box(x, y, frame.right, lines.height, state),
        _dot(x + 17, first - 4.5, state),
        *(_text(line, x + 30, first + _LINE * at, "name") for at, line in enumerate(lines.name)),
        *(
            _text(line, x + 30, first + _LINE * (len(lines.name) + at), "said")
            for at, line in enumerate(lines.below)
        ),
        *beside,
        cls=f"node {state}",
    )


def _rows(frame: _Frame, table: TableView) -> str:
    if frame.row < 40:
        return per_second(table.rate)
    rows = short(table.rows)
    return rows if frame.width < 500 else f"{rows} {'row' if table.rows == 1 else 'rows'}"


def _letters(frame: _Frame, view: RunView, lines: _Lines, y: float) -> Markup:
    state = "letters" if view.dead_letters else "new"
    x, middle = frame.right_x, y + frame.row / 2 + 4.5
    return tag(
        "g",
        tag("title", f"dead letters: {view.letters.path}"),
        _box(x, y, frame.right, lines.height, state),
        _text(lines.name[0], x + 14, middle, "name"),
        _text(lines.said, x + frame.right - 14, middle, "said end"),
        cls=f"node {state}",
    )


def _dot(x: float, y: float, state: str) -> Markup:
    return Markup(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="dot {state}"></circle>')
