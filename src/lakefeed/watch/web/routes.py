"""Routes on the page: the tables that a route has made, and one line that stands for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakefeed.watch.view import FlowView, RunView, TableView


@dataclass(frozen=True)
class Row:
    """A line of the list of tables: a table, or a route with its tables in `parts`."""

    table: TableView
    parts: tuple[TableView, ...] = ()

    @property
    def tables(self) -> int:
        """How many tables it stands for."""
        return len(self.parts) or 1


def rows(view: RunView) -> list[Row]:
    """A row for each table of the file; tables of a route are inside of its row."""
    parts: dict[str, list[TableView]] = {}
    for table in view.tables:
        route, slash, _ = table.name.partition("/")
        if slash:
            parts.setdefault(route, []).append(table)
    return [
        Row(_together(one, parts[one.name]), tuple(parts[one.name])) if one.name in parts else Row(one)
        for one in view.tables
        if "/" not in one.name
    ]


def folded(view: RunView) -> RunView:
    """The run as its drawing shows it: each route is one table."""
    flows: dict[tuple[str, str], FlowView] = {}
    for flow in view.flows:
        key = flow.source, flow.table.partition("/")[0]
        known = flows.get(key, replace(flow, table=key[1], rate=0.0))
        flows[key] = replace(known, rate=known.rate + flow.rate, up=known.up and flow.up)
    tables = tuple(row.table for row in rows(view))
    return replace(view, tables=tables, flows=tuple(flows.values()))


def _together(route: TableView, parts: list[TableView]) -> TableView:
    """Sums over the tables of a route, the newest of their times, and the worst of their states."""
    behind = max(parts, key=lambda one: -1 if one.lag is None else one.lag)
    stopped = next((one for one in parts if one.stopped), route)
    delayed = next((one for one in parts if one.trouble), route)
    return replace(
        route,
        version=max((one.version for one in parts if one.version is not None), default=None),
        rows=sum(one.rows for one in parts),
        files=sum(one.files for one in parts),
        small_files=sum(one.small_files for one in parts),
        size=sum(one.size for one in parts),
        written=sum(one.written for one in parts),
        dead_letters=route.dead_letters + sum(one.dead_letters for one in parts),
        rate=sum(one.rate for one in parts),
        points=[sum(each) for each in zip(*(one.points for one in parts), strict=False)],
        last_commit=_newest(one.last_commit for one in parts),
        newest=_newest(one.newest for one in parts),
        offsets=behind.offsets,
        lag_words=behind.lag_words,
        stopped=stopped.stopped,
        trouble=delayed.trouble,
        backwards={at: text for one in (route, *parts) for at, text in one.backwards.items()},
        refusing=route.refusing or next((one.refusing for one in parts if one.refusing), ""),
    )


def _newest(times: Iterable[float | None]) -> float | None:
    return max((one for one in times if one is not None), default=None)
