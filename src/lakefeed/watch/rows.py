"""The tables on the page: a row for each, which opens to its partitions and its last commits."""

from __future__ import annotations

from collections.abc import Container

from lakefeed.pipeline.units import readable_size
from lakefeed.watch.drawing import chart
from lakefeed.watch.figures import ago, clock, per_second, short
from lakefeed.watch.markup import Markup, join, tag
from lakefeed.watch.view import CommitView, PartitionView, RunView, TableView

_COLUMNS = ("table", "rows/s", "rows", "lag", "fresh", "files", "dead letters", "last commit")
_MANY = 8
_ALL_OPEN = 12
"""Up to so many tables, the details of all are there before anybody opens them."""
_PARTITIONS_SHOWN = 24


def table_rows(view: RunView, opened: Container[str]) -> Markup:
    """All tables, with a field to find one where there are many."""
    few = len(view.tables) <= _ALL_OPEN
    finder = Markup('<input id="find" type="search" placeholder="find a table" aria-label="find a table">')
    return tag(
        "section",
        tag("h2", "Tables", *([finder] if len(view.tables) > _MANY else [])),
        tag("div", *(tag("span", name) for name in _COLUMNS), cls="row heading", aria_hidden="true"),
        *(_row(one, view.now, few or one.name in opened) for one in view.tables),
        cls="card tables",
        id="tables",
    )


def _row(table: TableView, now: float, opened: bool) -> Markup:
    state = table.state
    return tag(
        "details",
        tag("summary", *_cells(table, state, now), cls="row"),
        tag("div", *(_more(table) if opened else ()), cls="more"),
        cls=f"table {state}",
        id=f"table-{table.name}",
        data_name=table.name,
    )


def _cells(table: TableView, state: str, now: float) -> list[Markup]:
    lag, fresh = table.lag, None if table.newest is None else now - table.newest
    files = f"{short(table.files)}" + (f" ({short(table.small_files)} small)" if table.small_files else "")
    last = "-" if table.last_commit is None else f"{ago(now - table.last_commit)} ago"
    return [
        Markup(f'<span class="cell first"><i class="mark {state}"></i><b>{join(table.name)}</b></span>'),
        _cell(
            "rows/s",
            Markup(f"<span>{per_second(table.rate)}</span>"),
            chart(table.points, f"rows a second into {table.name}, the last hour"),
            cls="rate",
        ),
        _cell("rows", short(table.rows)),
        _cell("lag", "-" if lag is None else short(lag), cls="behind" if lag else ""),
        _cell("fresh", "-" if fresh is None else ago(fresh)),
        _cell("files", files),
        _cell("dead letters", short(table.letters), cls="letters" if table.letters else ""),
        _cell("last commit", last),
    ]


def _cell(label: str, *inside: str | Markup, cls: str = "") -> Markup:
    # Written out, as a page of fifty tables has four hundred of them.
    return Markup(f'<span class="cell {cls}" data-label="{label}">{join(*inside)}</span>')


def _more(table: TableView) -> list[Markup]:
    found = [tag("p", tag("code", table.path), cls="path")]
    if table.stopped:
        found.append(tag("p", table.stopped, cls="remedy"))
    if table.refusing:
        found.append(tag("p", table.refusing, cls="remedy"))
    version = "not created yet" if table.version is None else f"version {table.version:,}"
    found.append(tag("p", f"{version} · {readable_size(table.size)} · from {', '.join(table.sources)}"))
    if table.partitions:
        found.append(_partitions(table.partitions))
    if table.history:
        found.append(_commits(table.history))
    return found


def _partitions(partitions: tuple[PartitionView, ...]) -> Markup:
    behind = sorted(partitions, key=lambda one: -(one.lag or 0))
    rows = [
        tag(
            "tr",
            tag("td", f"{one.source} {one.partition}"),
            tag("td", f"{one.next:,}"),
            tag("td", "?" if one.end is None else f"{one.end:,}"),
            tag("td", "?" if one.lag is None else f"{one.lag:,}"),
        )
        for one in behind[:_PARTITIONS_SHOWN]
    ]
    left = len(behind) - len(rows)
    more = [tag("caption", f"the {_PARTITIONS_SHOWN} most behind; {left:,} more")] if left > 0 else []
    return _grid(("partition", "next", "end", "lag"), rows, more)


def _commits(history: tuple[CommitView, ...]) -> Markup:
    rows = [
        tag(
            "tr",
            tag("td", f"version {one.version:,} at {clock(one.at)}"),
            tag("td", f"{one.rows:,}"),
            tag("td", f"{one.files:,}"),
            tag("td", readable_size(one.size)),
            tag("td", f"{one.seconds * 1000:.0f} ms"),
        )
        for one in history
    ]
    return _grid(("last commits", "rows", "files", "size", "took"), rows, [])


def _grid(heads: tuple[str, ...], rows: list[Markup], more: list[Markup]) -> Markup:
    return tag(
        "table",
        *more,
        tag("thead", tag("tr", *(tag("th", head) for head in heads))),
        tag("tbody", *rows),
    )
