"""A sample of the events that wait: what they would become in a table, without writing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from lakefeed.engine.lake import Place
from lakefeed.engine.plan import format_of
from lakefeed.errors import TableError
from lakefeed.pipeline.widening import merge_proposals
from lakefeed.rows.partition import add_partition_columns
from lakefeed.rows.rename import as_in_events, as_in_table
from lakefeed.sources import Events, OffsetRange, Offsets, Source

_MOST_EVENTS = 1_000
_MOST_PARTITIONS = 50
_MOST_BYTES = 32 * 2**20


@dataclass
class Sample:
    """What some of the waiting events would become in one table."""

    events: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    """By code."""
    new_columns: pa.Schema | None = None
    partitions: int = 0
    """Different values of `partition_by` among the rows."""
    rows: int = 0


def read_sample(source: Source, start: Offsets, ends: Offsets) -> list[list[bytes | None]]:
    """Payloads from the beginning of what waits, over all partitions; bounded in number and in bytes."""
    waiting = [name for name in sorted(start) if ends.get(name, 0) > start[name]][:_MOST_PARTITIONS]
    share = max(1, _MOST_EVENTS // max(1, len(waiting)))
    ranges = [OffsetRange(name, start[name], min(ends[name], start[name] + share)) for name in waiting]
    found, size = [], 0
    for events in _read(source, ranges):
        payloads = list(events.payloads)
        found.append(payloads)
        size += sum(map(len, filter(None, payloads)))
        if size > _MOST_BYTES:
            break
    return found


def _read(source: Source, ranges: list[OffsetRange]) -> Iterator[Events]:
    return source.read(ranges) if ranges else iter(())


def take_sample(place: Place, source: Source, payloads: list[list[bytes | None]]) -> Sample:
    """Decode the payloads as a task would for this table."""
    sample = Sample()
    columns = place.columns()
    known = pa.schema([]) if columns is None else columns
    refused: Counter[str] = Counter()
    rename = place.rename
    decoder = format_of(source).decoder(as_in_events(known, rename), place.rules(columns))
    for portion in payloads:
        decoded = decoder.decode(portion)
        sample.events += len(portion)
        refused.update(one.code for one in decoded.refused)
        if decoded.unknown is not None:
            new = as_in_table(decoded.unknown, rename)
            before = sample.new_columns
            sample.new_columns = merge_proposals(before, new) if before else new
    sample.dead_letters = dict(refused)
    if columns is None:
        known = sample.new_columns or known
    if len(known):
        _count_partitions(place, source, known, payloads, sample)
    return sample


def _count_partitions(
    place: Place, source: Source, columns: pa.Schema, payloads: list[list[bytes | None]], sample: Sample
) -> None:
    fields = place.partition_fields
    if not all(each.column in columns.names for each in fields):
        raise TableError(f"table {place.name}: events have no column for `partition_by`.")
    decoder = format_of(source).decoder(as_in_events(columns, place.rename), place.rules(columns))
    values: set[tuple[object, ...]] = set()
    for portion in payloads:
        rows = decoder.decode(portion).rows
        rows = rows.rename_columns(as_in_table(rows.schema, place.rename).names)
        sample.rows += rows.num_rows
        if fields:
            shaped = add_partition_columns(rows, [each for each in fields if each.derived])
            values |= set(zip(*(shaped.column(each.name).to_pylist() for each in fields), strict=True))
    sample.partitions = len(values)
