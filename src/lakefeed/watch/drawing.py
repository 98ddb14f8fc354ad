"""The pipeline as a drawing, and small charts: SVG without anything from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from lakefeed.pipeline.wording import counted
from lakefeed.watch.figures import per_second, short
from lakefeed.watch.markup import Markup, join, tag
from lakefeed.watch.view import FlowView, RunView, SourceView, TableView

_MANY = 14
"""With more tables than these, each gets a low row."""
_SOURCE_HEIGHT = 54.0
_GAP = 14.0


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
    narrow = _Frame(width=390, left=128, right=170, row=20 if many else 44)
    return join(_draw(view, wide, "drawing wide"), _draw(view, narrow, "drawing narrow"))


def _draw(view: RunView, frame: _Frame, cls: str) -> Markup:
    tables_height = len(view.tables) * (frame.row + _gap(frame))
    sources_height = len(view.sources) * (_SOURCE_HEIGHT + _GAP)
    height = max(tables_height, sources_height) + frame.row + 26
    sources_at = _spread(len(view.sources), _SOURCE_HEIGHT, height - frame.row - 26)
    rows_at = {
        one.name: at + frame.row / 2
        for one, at in zip(
            view.tables, _spread(len(view.tables), frame.row, height - frame.row - 26), strict=True
        )
    }
    middles = {one.name: at + _SOURCE_HEIGHT / 2 for one, at in zip(view.sources, sources_at, strict=True)}
    letters_at = height - frame.row - 4
    lettering = [one for one in view.sources if one.letters]
    return tag(
        "svg",
        *(_edge(frame, flow, middles[flow.source], rows_at[flow.table]) for flow in view.flows),
        *(_letter_edge(frame, one, middles[one.name], letters_at + frame.row / 2) for one in lettering),
        *(_source(frame, one, at) for one, at in zip(view.sources, sources_at, strict=True)),
        *(_table(frame, one, rows_at[one.name] - frame.row / 2) for one in view.tables),
        *(_rate(frame, one, rows_at[one.name]) for one in view.tables),
        _letters(frame, view, letters_at),
        cls=cls,
        viewBox=f"0 0 {frame.width:.0f} {height:.0f}",
        role="img",
        aria_label=f"{counted(len(view.sources), 'source')} into {counted(len(view.tables), 'table')}",
    )


def _gap(frame: _Frame) -> float:
    return 4.0 if frame.row < 40 else 12.0


def _spread(count: int, size: float, height: float) -> list[float]:
    """Where boxes begin that are spread evenly over a height."""
    free = (height - count * size) / max(1, count)
    return [free / 2 + at * (size + free) for at in range(count)]


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
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width - 2:.0f}" height="{height:.0f}"'
    return Markup(f'<rect {place} rx="9" class="box {cls}"></rect>')


def _text(said: str, x: float, y: float, cls: str) -> Markup:
    return Markup(f'<text x="{x:.0f}" y="{y:.1f}" class="{cls}">{join(said)}</text>')


def _path(line: str, cls: str) -> Markup:
    return Markup(f'<path d="{line}" class="{cls}"></path>')


def _source(frame: _Frame, source: SourceView, y: float) -> Markup:
    state = "down" if source.stopped or source.trouble else "up" if source.seen_at else "new"
    if source.stopped or source.trouble:
        said = "stopped" if source.stopped else "does not answer"
    else:
        said = (
            f"{per_second(source.rate)} · lag {short(source.lag)}" if source.lag is not None else "starting"
        )
    room = int(frame.left / 8.2)
    return tag(
        "g",
        tag("title", f"source {source.name} ({source.kind}): {source.trouble or source.stopped or said}"),
        _box(1, y, frame.left, _SOURCE_HEIGHT, state),
        _dot(18, y + 19, state),
        _text(cut(source.name, room - 4), 32, y + 24, "name"),
        _text(cut(f"{source.kind} · {said}", room + 2), 14, y + 43, "said"),
        cls=f"node {state}",
    )


def _table(frame: _Frame, table: TableView, y: float) -> Markup:
    state = table.state
    middle = y + frame.row / 2 + 4.5
    x, width = frame.right_x, frame.right
    said = "refused" if table.stopped else "not yet" if table.version is None else _rows(frame, table)
    room = int((width - 40) / 8.2) - len(said)
    return tag(
        "g",
        tag("title", f"table {table.name}: {table.stopped or table.refusing or said}"),
        _box(x, y, width, frame.row, state),
        _dot(x + 17, y + frame.row / 2, state),
        _text(cut(table.name, room), x + 30, middle, "name"),
        _text(said, x + width - 14, middle, "said end"),
        cls=f"node {state}",
    )


def _rows(frame: _Frame, table: TableView) -> str:
    if frame.row < 40:
        return per_second(table.rate)
    rows = short(table.rows)
    return rows if frame.width < 500 else f"{rows} {'row' if table.rows == 1 else 'rows'}"


def _letters(frame: _Frame, view: RunView, y: float) -> Markup:
    count = view.dead_letters
    state = "letters" if count else "new"
    x, middle = frame.right_x, y + frame.row / 2 + 4.5
    return tag(
        "g",
        tag("title", f"dead letters: {view.letters.path}"),
        _box(x, y, frame.right, frame.row, state),
        _text("dead letters", x + 14, middle, "name"),
        _text(short(count), x + frame.right - 14, middle, "said end"),
        cls=f"node {state}",
    )


def _dot(x: float, y: float, state: str) -> Markup:
    return Markup(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="dot {state}"></circle>')


def cut(text: str, room: int) -> str:
    """A name that fits; the whole of it is in the title beside it."""
    return text if len(text) <= room else text[: max(1, room - 1)] + "…"
