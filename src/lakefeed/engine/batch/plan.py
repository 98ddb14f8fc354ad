"""The plan of a flow: what its tasks need to know, and which tasks a batch has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakefeed.dead_letters.form import DeadLetterForm
from lakefeed.events import OffsetRange, Offsets, Split
from lakefeed.formats import Format
from lakefeed.formats.json.format import JsonFormat
from lakefeed.handles.table_plan import TablePlan, is_missing
from lakefeed.sources import Source, SourceClient


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
    most_bytes: int | None = None
    """Payload bytes after which a task gives up: its batch was planned for far smaller events."""
    dead_letter_form: DeadLetterForm | None = None
    """How dead letters are written where their table is not Lakefeed's own."""
    sync: bool = True
    """Whether files of dead letters outlive a power cut."""

    @property
    def shaped(self) -> TablePlan | None:
        """The table whose rows Spark's operators shape; it is the only one of its flow."""
        return self.tables[0] if self.tables and self.tables[0].needs_spark else None

    def cut(self, start: Offsets, end: Offsets) -> Offsets:
        """Bring the end of a batch back, so that a table takes all of a partition's range or none."""
        target = dict(end)
        for offsets in self.positions():
            for partition, offset in offsets.items():
                if start[partition] < offset < target[partition]:
                    target[partition] = offset
        return target

    def positions(self) -> list[Offsets]:
        """The next offsets of every table."""
        return [offsets for table in self.tables for offsets in table.positions()]


def format_of(source: Source) -> Format:
    """The format of a source's payloads; of a source of columns, that of its dead letters."""
    found = source.payload_format or JsonFormat()
    assert isinstance(found, Format)
    return found


def spans(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """The ranges of a batch, one for each partition that has something to read."""
    return [OffsetRange(name, start[name], end[name]) for name in sorted(end) if start[name] < end[name]]


def splits(client: SourceClient, start: Offsets, end: Offsets, plan: FlowPlan, cores: int) -> list[Split]:
    """Cut a batch into tasks for so many cores, each of ranges that the same tables take."""
    groups: dict[tuple[bool, ...], list[OffsetRange]] = {}
    for span in spans(start, end):
        takers = tuple(is_missing(offsets, span) for offsets in plan.positions())
        groups.setdefault(takers, []).append(span)
    return [task for group in groups.values() for task in client.splits(group, cores)]
