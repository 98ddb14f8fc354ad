"""A sample of the events that wait: what they would become in a table, without writing anything."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from lakefeed.columns.widening import merge_proposals
from lakefeed.engine.batch.decoding import EventDecoder
from lakefeed.engine.batch.plan import format_of, spans
from lakefeed.errors import TableError
from lakefeed.events import Events, Offsets, Refused
from lakefeed.handles.handle import TableHandle
from lakefeed.rows.partition import add_partition_columns
from lakefeed.rows.rename import as_in_events, as_in_table
from lakefeed.sources import Allowance, Source, SourceClient

_MOST_EVENTS = 1_000
_MOST_PARTITIONS = 50
_MOST_ERRORS = 200
_MOST_BYTES = 32 * 2**20


@dataclass
class SampleOutcome:
    """What some of the waiting events would become in one table."""

    events: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    """By code."""
    errors: list[str] = field(default_factory=list)
    """What some of the events were told that do not fit the columns."""
    misfits: Counter[str] = field(default_factory=Counter)
    """By the column that refused them."""
    new_columns: pa.Schema | None = None
    partitions: int = 0
    """Different values of `partition_by` among the rows."""
    rows: int = 0

    @property
    def refused(self) -> int:
        """All that would become dead letters."""
        return sum(self.dead_letters.values())


def read_sample(source: Source, client: SourceClient, start: Offsets, ends: Offsets) -> list[Events]:
    """Events from the beginning of what waits, over all partitions; bounded in number and in bytes."""
    found, size = [], 0
    for events in _read(source, client, start, ends):
        found.append(events)
        size += events.size()[0]
        if size > _MOST_BYTES:
            break
    return found


def _read(source: Source, client: SourceClient, start: Offsets, ends: Offsets) -> Iterator[Events]:
    waiting = [name for name, rows in sorted(client.rows_between(start, ends).items()) if rows]
    some = {name: start[name] for name in waiting[:_MOST_PARTITIONS]}
    if not some:
        return
    allowed = Allowance(max(1, _MOST_EVENTS // len(some)), _MOST_BYTES)
    # One by one, so that each has its share, however much waits in the others.
    end = {name: client.next_end({name: at}, ends, allowed)[name] for name, at in some.items()}
    for split in client.splits(spans(some, end), 1):
        yield from source.read(split)


def take_sample(handle: TableHandle, source: Source, sampled: list[Events]) -> SampleOutcome:
    """Decode events as a run would for this table: once for what is new, once with that added."""
    sample = SampleOutcome(events=sum(map(len, sampled)))
    columns = handle.columns()
    known = pa.schema([]) if columns is None else columns
    rename = handle.rename
    decoder = EventDecoder(format_of(source), as_in_events(known, rename), handle.rules(columns))
    for portion in sampled:
        decoded = decoder.decode(portion)
        _refuse(sample, decoded.refused)
        if decoded.unknown is not None:
            new = as_in_table(decoded.unknown, rename)
            before = sample.new_columns
            sample.new_columns = merge_proposals(before, new) if before else new
    if sample.new_columns is not None:
        known = merge_proposals(known, sample.new_columns)
    if len(known):
        _take_again(handle, source, known, sampled, sample)
    return sample


def _refuse(sample: SampleOutcome, refused: list[Refused]) -> None:
    for one in refused:
        sample.dead_letters[one.code] = sample.dead_letters.get(one.code, 0) + 1
        if one.stage == "schema":
            sample.misfits[re.split(r"[.\[:]", one.error, maxsplit=1)[0]] += 1
            sample.errors += [one.error] if len(sample.errors) < _MOST_ERRORS else []


def _take_again(
    handle: TableHandle,
    source: Source,
    columns: pa.Schema,
    sampled: list[Events],
    sample: SampleOutcome,
) -> None:
    """What becomes of the events when the table has these columns."""
    fields = handle.partition_fields
    if not all(each.column in columns.names for each in fields):
        raise TableError(f"table {handle.name}: events have no column for `partition_by`.")
    decoder = EventDecoder(format_of(source), as_in_events(columns, handle.rename), handle.rules(columns))
    values: set[tuple[object, ...]] = set()
    sample.dead_letters, sample.errors, sample.misfits = {}, [], Counter()
    for portion in sampled:
        decoded = decoder.decode(portion)
        _refuse(sample, decoded.refused)
        rows = decoded.rows.rename_columns(as_in_table(decoded.rows.schema, handle.rename).names)
        sample.rows += rows.num_rows
        if fields:
            shaped = add_partition_columns(rows, [each for each in fields if each.derived])
            values |= set(zip(*(shaped.column(each.name).to_pylist() for each in fields), strict=True))
    sample.partitions = len(values)
