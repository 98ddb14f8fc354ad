"""The plan of a flow: what its tasks need to know, and how offsets are split into tasks. Picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakefeed.formats import Format
from lakefeed.handles.table_plan import TablePlan
from lakefeed.sources import OffsetRange, Offsets, Source

_ROWS_WORTH_A_TASK = 50_000


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
