"""What the row of a table opens to: its columns, partitions, versions, and positions at the sources."""

from __future__ import annotations

from lakefeed.figures import clock, readable_size
from lakefeed.text import counted, listed
from lakefeed.watch.view import PartitionView, TableView
from lakefeed.watch.web.markup import Markup, tag

_PARTITIONS_SHOWN = 24
_COLUMNS_SHOWN = 60
"""More are told only when somebody looks: a page that is fetched every two seconds must stay small."""


def details(table: TableView, opened: bool) -> list[Markup]:
    """All that is known of a table; `opened` when somebody looks at it."""
    found = [tag("p", tag("code", table.path), cls="path")]
    if table.stopped or table.trouble:
        found.append(tag("p", table.stopped or table.trouble, cls="remedy"))
    if table.refusing:
        found.append(tag("p", table.refusing, cls="remedy"))
    found.append(tag("p", _facts(table)))
    parts = []
    if table.columns:
        parts.append(_columns(table, opened))
    if table.partitions:
        parts.append(_positions(table.partitions, opened))
    if table.history:
        parts.append(_versions(table))
    return [*found, *parts]


def _facts(table: TableView) -> str:
    if table.version is None:
        return f"not created yet · from {listed(table.sources)}"
    facts = [
        f"version {table.version:,}",
        counted(table.rows, "row"),
        f"{readable_size(table.size)} in {counted(table.files, 'file')}",
        f"from {listed(table.sources)}",
    ]
    if table.partition_by:
        values = counted(table.partition_values, "partition")
        facts.append(f"partitioned by {listed(table.partition_by)}, {values}")
    elif table.columns:
        facts.append("not partitioned")
    return " · ".join(facts)


def _columns(table: TableView, opened: bool) -> Markup:
    many = len(table.columns)
    shown = table.columns if opened else table.columns[:_COLUMNS_SHOWN]
    items = [
        tag(
            "li",
            tag("b", name),
            " ",
            tag("code", kind),
            *([tag("small", " partition")] if name in table.partition_by else []),
        )
        for name, kind in shown
    ]
    return tag("div", tag("h4", counted(many, "column")), tag("ul", *items, cls="columns"))


def _positions(partitions: tuple[PartitionView, ...], opened: bool) -> Markup:
    behind = sorted(partitions, key=lambda one: -(one.lag or 0))
    rows = [
        tag(
            "tr",
            tag("td", f"{one.source} {one.partition}"),
            tag("td", f"{one.next:,}"),
            tag("td", "?" if one.end is None else f"{one.end:,}"),
            tag("td", "?" if one.lag is None else f"{one.lag:,}"),
        )
        for one in (behind if opened else behind[:_PARTITIONS_SHOWN])
    ]
    head = ("source partition", "next", "end", "lag")
    return tag(
        "div", tag("h4", f"Positions in {counted(len(behind), 'source partition')}"), _grid(head, rows)
    )


def _versions(table: TableView) -> Markup:
    several = len(table.sources) > 1
    rows = [
        tag(
            "tr",
            tag("td", f"{one.version:,} at {clock(one.at)}" + (f" from {one.source}" if several else "")),
            tag("td", f"{one.rows:,}"),
            tag("td", f"{one.files:,}"),
            tag("td", readable_size(one.size)),
            tag("td", f"{one.seconds * 1000:.0f} ms"),
        )
        for one in table.history
    ]
    head = ("version", "rows", "files", "size", "took")
    return tag("div", tag("h4", "Newest versions of this run"), _grid(head, rows))


def _grid(heads: tuple[str, ...], rows: list[Markup]) -> Markup:
    return tag(
        "table",
        tag("thead", tag("tr", *(tag("th", head) for head in heads))),
        tag("tbody", *rows),
    )
