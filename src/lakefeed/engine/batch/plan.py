"""The plan of a flow: what its tasks need to know, and how offsets are split into tasks. Picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakefeed.files.parquet import FileTarget
from lakefeed.formats import DEFAULT_RULES, Format, Rules
from lakefeed.pipeline.options.metadata import MetadataColumns
from lakefeed.pipeline.options.partition_by import PartitionField
from lakefeed.pipeline.options.route import Key, Route
from lakefeed.sources import OffsetRange, Offsets, Source

_ROWS_WORTH_A_TASK = 50_000

Stamp = tuple[int, int | None]
"""An offset and the timestamp of its event in microseconds: a topic made anew has the same offsets again."""


@dataclass(frozen=True)
class RoutedTable:
    """One table of a route. `rows_from` as in `TablePlan`."""

    name: str
    path: str
    target: FileTarget
    rows_from: Offsets


@dataclass(frozen=True)
class TablePlan:
    """How one table takes the events of a flow. `columns` is None while its schema is still to be inferred.

    `rows_from` are the next offsets of the table: what lies before them is there already. `lettered` are
    events from there on that are dead letters of the table already, as a crash came before the rows beside
    them were committed. Neither is written again.
    """

    name: str
    path: str
    storage: Mapping[str, str] = field(repr=False)
    columns: pa.Schema | None
    target: FileTarget | None
    partition_by: tuple[PartitionField, ...]
    metadata: MetadataColumns
    rows_from: Offsets
    lettered: Mapping[str, frozenset[Stamp]] = field(default_factory=dict)
    rules: Rules = DEFAULT_RULES
    rescues: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    route: Route | None = None
    routed: Mapping[Key, RoutedTable] = field(default_factory=dict)
    reserved: frozenset[Key] = frozenset()
    """Values whose table would lie where another table of the pipeline is."""
    full: bool = False
    """Whether the route has as many tables as it may."""

    def takes_rows(self, span: OffsetRange) -> bool:
        """Whether the table still misses the events of this range. Ranges never straddle a position."""
        return self.rows_from[span.partition] <= span.start

    def positions(self) -> list[Offsets]:
        """The next offsets of the table, or of every table of its route and the lowest of them."""
        return [self.rows_from, *(one.rows_from for one in self.routed.values())]


@dataclass(frozen=True)
class FlowPlan:
    """One source and the tables that it feeds."""

    pipeline: str
    source_name: str
    source: Source = field(repr=False)
    format: Format = field(repr=False)
    tables: tuple[TablePlan, ...]
    dead_letters_path: str
    dead_letters_storage: Mapping[str, str] = field(repr=False)
    cores: int
    most_bytes: int | None = None
    """Payload bytes after which a task gives up: its batch was planned for far smaller events."""
    sync: bool = True
    """Whether files of dead letters outlive a power cut."""

    def cut(self, start: Offsets, end: Offsets) -> Offsets:
        """Bring the end of a batch back, so that a table takes all of a partition's range or none."""
        answer = dict(end)
        for offsets in self.positions():
            for partition, offset in offsets.items():
                if start[partition] < offset < answer[partition]:
                    answer[partition] = offset
        return answer

    def positions(self) -> list[Offsets]:
        """The next offsets of every table."""
        return [offsets for table in self.tables for offsets in table.positions()]


def group_of(name: str) -> str:
    """The table of the pipeline file that a table belongs to: those of a route have a name behind a slash."""
    return name.partition("/")[0]


def format_of(source: Source) -> Format:
    """The format of a source's payloads."""
    found = source.format
    assert isinstance(found, Format)
    return found


def spans(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """The ranges of a batch, one for each partition that has something to read."""
    return [OffsetRange(name, start[name], end[name]) for name in sorted(end) if start[name] < end[name]]


def split(start: Offsets, end: Offsets, plan: FlowPlan) -> list[tuple[OffsetRange, ...]]:
    """Cut a batch into tasks of about equal size, each of ranges that the same tables take.

    A small batch is one task, so that it makes one file; a large one keeps every core busy to its end,
    which may cut a partition in two.
    """
    groups: dict[tuple[bool, ...], list[OffsetRange]] = {}
    for span in spans(start, end):
        takers = tuple(offsets[span.partition] <= span.start for offsets in plan.positions())
        groups.setdefault(takers, []).append(span)
    return [task for group in groups.values() for task in _share_out(group, plan.cores)]


def _share_out(spans: list[OffsetRange], cores: int) -> list[tuple[OffsetRange, ...]]:
    total = sum(map(len, spans))
    count = max(1, min(cores, total // _ROWS_WORTH_A_TASK))
    limits = [total * (i + 1) // count for i in range(count)]
    tasks: list[list[OffsetRange]] = [[] for _ in limits]
    done, task = 0, 0
    for span in spans:
        at = span.start
        while at < span.end:
            take = min(span.end - at, limits[task] - done)
            tasks[task].append(OffsetRange(span.partition, at, at + take))
            at, done = at + take, done + take
            if done == limits[task] and task < count - 1:
                task += 1
    return [tuple(ranges) for ranges in tasks if ranges]
