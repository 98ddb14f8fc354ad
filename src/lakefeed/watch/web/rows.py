"""The tables on the page: a row for each, which opens to its columns, its positions and its versions."""

from __future__ import annotations

from collections.abc import Container

from lakefeed.figures import ago, per_second, short
from lakefeed.watch.view import RunView, TableView
from lakefeed.watch.web.details import details
from lakefeed.watch.web.drawing import chart
from lakefeed.watch.web.markup import Markup, join, tag
from lakefeed.watch.web.ranges import range_text

_COLUMNS = ("table", "rows/s", "rows", "lag", "fresh", "files", "new dead letters", "last commit")
_MANY = 8
_ALL_OPEN = 12
"""Up to so many tables, the details of all are there before anybody opens them."""


def table_rows(view: RunView, opened: Container[str] | None) -> Markup:
    """All tables, with a field to find one where there are many; None opens as many as a page holds."""
    few = len(view.tables) <= _ALL_OPEN
    finder = Markup('<input id="find" type="search" placeholder="find a table" aria-label="find a table">')
    return tag(
        "section",
        tag("h2", "Tables", *([finder] if len(view.tables) > _MANY else [])),
        tag("div", *(tag("span", name) for name in _COLUMNS), cls="row heading", aria_hidden="true"),
        *(_row(one, view, few, few if opened is None else one.name in opened) for one in view.tables),
        cls="card tables",
        id="tables",
    )


def _row(table: TableView, view: RunView, few: bool, opened: bool) -> Markup:
    state = table.state
    return tag(
        "details",
        tag("summary", *_cells(table, state, view), cls="row"),
        tag("div", *(details(table, opened) if few or opened else ()), cls="more"),
        cls=f"table {state}",
        id=f"table-{table.name}",
        data_name=table.name,
    )


def _cells(table: TableView, state: str, view: RunView) -> list[Markup]:
    now = view.now
    lag, fresh = table.lag, None if table.newest is None else now - table.newest
    files = f"{short(table.files)}" + (f" ({short(table.small_files)} small)" if table.small_files else "")
    last = "-" if table.last_commit is None else f"{ago(now - table.last_commit)} ago"
    return [
        Markup(f'<span class="cell first"><i class="mark {state}"></i><b>{join(table.name)}</b></span>'),
        _cell(
            "rows/s",
            Markup(f"<span>{per_second(table.rate)}</span>"),
            chart(table.points, f"rows a second into {table.name}, {range_text(view.span)}"),
            cls="rate",
        ),
        _cell("rows", short(table.rows)),
        _cell("lag", "?" if lag is None else short(lag), cls="behind" if lag else ""),
        _cell("fresh", "-" if fresh is None else ago(fresh)),
        _cell("files", files),
        _cell("new dead letters", short(table.letters), cls="letters" if table.letters else ""),
        _cell("last commit", last),
    ]


def _cell(label: str, *inside: str | Markup, cls: str = "") -> Markup:
    # Written out, as a page of fifty tables has four hundred of them.
    return Markup(f'<span class="cell {cls}" data-label="{label}">{join(*inside)}</span>')
