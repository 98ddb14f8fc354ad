"""The drawing of a pipeline in which tables feed tables: a column for each step from the sources to the last.

On a narrow page the columns become steps of one list, from top to bottom.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakefeed.figures import ago, per_second, short
from lakefeed.text import counted, listed
from lakefeed.watch.view import RunView, SourceView, TableView
from lakefeed.watch.web.shapes import Box, Drawing, Edge, Text, curve, spread, wrapped

_WIDE, _NARROW = 960.0, 390.0
_LEAST, _INDENT = 132.0, 18.0
_LINE, _HEAD, _GAP = 17.0, 30.0, 16.0
_NAME_WIDTH, _SAID_WIDTH = 8.6, 6.7

Id = tuple[str, str]
"""`source` or `table`, and the name: a source and a table may have the same."""


@dataclass(frozen=True)
class _Node:
    """A source or a table, and the step at which it stands."""

    id: Id
    step: int
    state: str
    title: str
    said: tuple[str, ...]


@dataclass(frozen=True)
class _Area:
    """Where the box of a node is."""

    x: float
    y: float
    width: float
    height: float


def has_layers(view: RunView) -> bool:
    """Whether a table feeds another, or a query reads one."""
    return any(one.is_table for one in view.sources) or any(one.query for one in view.tables)


def layered(view: RunView) -> list[Drawing]:
    """The pipeline twice: in columns for a desk, as a list for a phone."""
    nodes = _nodes(view)
    return [_columns(view, nodes), _list(view, nodes)]


def feeders(view: RunView) -> dict[str, list[Id]]:
    """What each table gets its rows from."""
    tables = {one.name for one in view.sources if one.is_table}
    found: dict[str, list[Id]] = {one.name: [("table", name) for name in one.reads] for one in view.tables}
    for flow in view.flows:
        found[flow.table].append(("table" if flow.source in tables else "source", flow.source))
    return found


def _nodes(view: RunView) -> list[_Node]:
    """Sources, then tables, each behind those that feed it."""
    fed = feeders(view)
    steps: dict[str, int] = {}

    def step(name: str, way: tuple[str, ...] = ()) -> int:
        if name not in steps and name not in way:
            above = [step(one, (*way, name)) if kind == "table" else 0 for kind, one in fed.get(name, ())]
            steps[name] = 1 + max(above, default=0)
        return steps.get(name, 1)

    sources = [_of_source(one) for one in view.sources if not one.is_table]
    tables = [_of_table(one, view.now, step(one.name)) for one in view.tables]
    return _untangled([*sources, *tables], fed)


def _untangled(nodes: list[_Node], fed: Mapping[str, list[Id]]) -> list[_Node]:
    """Nodes of a step in the order of what feeds them, so that few arrows cross."""
    rank: dict[Id, float] = {}
    ordered: list[_Node] = []

    def height(one: _Node) -> float:
        above = [rank[each] for each in fed.get(one.id[1], ()) if each in rank] if one.step else []
        return sum(above) / len(above) if above else 0.0

    for step in sorted({one.step for one in nodes}):
        here = sorted((one for one in nodes if one.step == step), key=height)
        rank.update((one.id, at / len(here)) for at, one in enumerate(here))
        ordered += here
    return ordered


def _of_source(source: SourceView) -> _Node:
    said = said_of(source)
    title = f"source {source.name} ({source.kind}): {source.trouble or source.stopped or said}"
    return _Node(("source", source.name), 0, source.state, title, (f"{source.kind} · {said}",))


def said_of(source: SourceView) -> str:
    """What stands in the box of a source: how fast it is read, or why it is not."""
    if source.stopped or source.trouble:
        return "stopped" if source.stopped else "does not answer"
    if source.lag is None:
        return "starting"
    return f"{per_second(source.rate)} · lag {source.lag_words or short(source.lag)}"


def _of_table(table: TableView, now: float, step: int) -> _Node:
    if table.stopped:
        said = "refused"
    elif table.version is None:
        said = f"waits for {listed(table.missing)}" if table.missing else "not yet"
    else:
        said = counted(table.rows, "row") if table.rows < 1000 else f"{short(table.rows)} rows"
    lines = [said, *_progress(table, now), *_rules(table)]
    title = f"table {table.name}: {table.stopped or table.trouble or table.refusing or said}"
    return _Node(("table", table.name), step, table.state, title, tuple(lines))


def _progress(table: TableView, now: float) -> Iterator[str]:
    """How far a table is behind what feeds it."""
    if table.version is None or table.stopped:
        return
    if table.trouble:
        yield "fails, keeps its rows" if table.query else "tried again"
    elif table.query:
        last = table.last_refresh or table.last_commit
        refreshed = "" if last is None else f"refreshed {ago(now - last)} ago"
        yield f"{counted(table.behind, 'version')} behind" if table.behind else refreshed
    elif table.lag is not None:
        yield f"lag {table.lag_words or short(table.lag)}"


def _rules(table: TableView) -> Iterator[str]:
    """What became of the rows that did not meet the expectations."""
    if not table.expectations:
        return
    missed = {
        rule: sum(count for result, count in results.items() if result != "passed")
        for rule, results in table.expectations.items()
    }
    found = [f"{rule}: {short(count)} not met" for rule, count in missed.items() if count]
    yield from found or [f"{counted(len(missed), 'rule')} met"]


def _columns(view: RunView, nodes: list[_Node]) -> Drawing:
    steps = 1 + max(one.step for one in nodes)
    gap = 112.0 if steps <= 3 else 84.0
    width = max(_LEAST, (_WIDE - gap * (steps - 1)) / steps)
    heights = {one.id: _HEAD + _LINE * _lines(one, width) for one in nodes}
    columns = [[one for one in nodes if one.step == step] for step in range(steps)]
    room = max(sum(heights[one.id] + _GAP for one in column) for column in columns)
    areas: dict[Id, _Area] = {}
    for step, column in enumerate(columns):
        begins = spread([heights[one.id] for one in column], room)
        for one, at in zip(column, begins, strict=True):
            areas[one.id] = _Area(1 + step * (width + gap), at, width - 2, heights[one.id])
    letters = _Area(1 + (steps - 1) * (width + gap), room + 20, width - 2, _HEAD + _LINE)
    edges = [_curve(areas[start], areas[end], cls) for start, end, cls in _arrows(view) if start in areas]
    edges += [_curve(areas[one], letters, cls) for one, cls in _letter_arrows(view) if one in areas]
    rates = [
        Text(
            per_second(one.rate),
            areas["table", one.name].x - 10,
            _middle(areas["table", one.name]) - 7,
            "rate",
        )
        for one in view.tables
        if not one.stopped and not one.query
    ]
    total = steps * width + (steps - 1) * gap
    return _drawing("wide", total, room + 74, view, nodes, areas, letters, edges, rates)


def _list(view: RunView, nodes: list[_Node]) -> Drawing:
    areas: dict[Id, _Area] = {}
    at = 2.0
    for one in nodes:
        x = 1 + _INDENT * one.step
        height = _HEAD + _LINE * _lines(one, _NARROW - x - 2)
        areas[one.id] = _Area(x, at, _NARROW - x - 2, height)
        at += height + 10
    letters = _Area(1 + _INDENT, at + 8, _NARROW - _INDENT - 3, _HEAD + _LINE)
    edges = [_elbow(areas[start], areas[end], cls) for start, end, cls in _arrows(view) if start in areas]
    edges += [_elbow(areas[one], letters, cls) for one, cls in _letter_arrows(view) if one in areas]
    return _drawing("narrow", _NARROW, at + 60, view, nodes, areas, letters, edges, [])


def _drawing(
    name: str,
    width: float,
    height: float,
    view: RunView,
    nodes: list[_Node],
    areas: Mapping[Id, _Area],
    letters: _Area,
    edges: list[Edge],
    rates: list[Text],
) -> Drawing:
    sources = sum(one.id[0] == "source" for one in nodes)
    label = f"{counted(sources, 'source')} into {counted(len(nodes) - sources, 'table')}"
    boxes = [_box(one, areas[one.id]) for one in nodes]
    return Drawing(name, width, height, label, edges, [*boxes, _letters(view, letters)], rates)


def _lines(node: _Node, width: float) -> int:
    return len(_name(node, width)) + sum(len(_wrapped(line, width)) for line in node.said) - 1


def _name(node: _Node, width: float) -> list[str]:
    return wrapped(node.id[1], int((width - 44) / _NAME_WIDTH))


def _wrapped(said: str, width: float) -> list[str]:
    return wrapped(said, int((width - 28) / _SAID_WIDTH))


def _box(node: _Node, area: _Area) -> Box:
    name = _name(node, area.width + 2)
    texts = [Text(line, area.x + 30, area.y + 22 + _LINE * at, "name") for at, line in enumerate(name)]
    below = [line for said in node.said for line in _wrapped(said, area.width + 2)]
    first = area.y + 22 + _LINE * len(name)
    texts += [Text(line, area.x + 13, first + _LINE * at, "said") for at, line in enumerate(below)]
    dot = (area.x + 17, area.y + 17.5)
    return Box(node.title, node.state, area.x, area.y, area.width, area.height, texts, dot=dot)


def _letters(view: RunView, area: _Area) -> Box:
    state, title = "letters" if view.dead_letters else "new", f"dead letters: {view.dead_letter_table.path}"
    name = Text("dead letters", area.x + 13, area.y + 22, "name")
    count = Text(f"{short(view.dead_letters)} new", area.x + 13, area.y + 22 + _LINE, "said")
    return Box(title, state, area.x, area.y, area.width, area.height, [name, count])


def _arrows(view: RunView) -> Iterator[tuple[Id, Id, str]]:
    """Every arrow from what feeds a table to the table, and how it looks."""
    tables = {one.name for one in view.sources if one.is_table}
    for flow in view.flows:
        kind = "table" if flow.source in tables else "source"
        yield (kind, flow.source), ("table", flow.table), flow.state
    for table in view.tables:
        for name in table.reads:
            cls = "broken" if table.state == "down" else "moving" if table.behind else "still"
            yield ("table", name), ("table", table.name), f"query {cls}"


def _letter_arrows(view: RunView) -> Iterator[tuple[Id, str]]:
    for one in view.sources:
        if one.dead_letters:
            kind = "table" if one.is_table else "source"
            yield (kind, one.name), f"letters {'moving' if one.dead_letter_rate else 'still'}"


def _middle(area: _Area) -> float:
    return area.y + area.height / 2


def _curve(start: _Area, end: _Area, cls: str) -> Edge:
    """From the right side of a box to the left side of another."""
    return curve((start.x + start.width, _middle(start)), (end.x, _middle(end)), cls, 30.0)


def _elbow(start: _Area, end: _Area, cls: str) -> Edge:
    """Down from the lower left corner of a box, and into the left side of another."""
    x = start.x + 8
    if end.x <= x:
        x = start.x - 6
    return Edge(f"M{x:.0f} {start.y + start.height:.1f}V{_middle(end):.1f}H{end.x:.0f}", f"edge {cls}")
