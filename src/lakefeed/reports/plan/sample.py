"""A sample of the events that wait: what they would become in a table, without writing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import reduce

import pyarrow as pa

from lakefeed.columns.widening import merge_proposals, merged_proposals
from lakefeed.engine.batch.plan import format_of, spans
from lakefeed.engine.task.decoding import EventDecoder, key_column
from lakefeed.engine.task.stream_columns import decoder_of
from lakefeed.errors import TableError
from lakefeed.events import Events, Offsets
from lakefeed.formats import Rules
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.progress import Expectations
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.route import Key
from lakefeed.reports.plan.shaped_sample import SampleOutcome, shape_sample
from lakefeed.rows.partition import add_partition_columns
from lakefeed.rows.rename import as_in_events, as_in_table
from lakefeed.rows.route import key_of
from lakefeed.sources import Allowance, Source, SourceClient
from lakefeed.sources.subscription import has_types_by_stream
from lakefeed.sql.projection import Projection
from lakefeed.tables.detail.shaped import merged_counts

_MOST_EVENTS = 1_000
_MOST_PARTITIONS = 50
_MOST_BYTES = 32 * 2**20


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
    if source.types_by_stream:
        yield from _read_streams(source, client, some, ends, allowed)
        return
    # One by one, so that each has its share, however much waits in the others.
    end = {name: client.next_end({name: at}, ends, allowed)[name] for name, at in some.items()}
    for split in client.splits(spans(some, end), 1):
        yield from source.read(split)


def _read_streams(
    source: Source, client: SourceClient, start: Offsets, ends: Offsets, allowed: Allowance
) -> Iterator[Events]:
    """The same stream by stream, as the rows of one and its changes go together."""
    for stream in dict.fromkeys(map(source.stream_of, start)):
        own = {name: at for name, at in start.items() if source.stream_of(name) == stream}
        for split in client.splits(spans(own, client.next_end(own, ends, allowed)), 1):
            yield from source.read(split)


def take_sample(handle: TableHandle, source: Source, sampled: list[Events]) -> SampleOutcome:
    """Decode events as a run would for this table: once for what is new, once with that added."""
    sample = SampleOutcome(events=sum(map(len, sampled)))
    columns = handle.events()
    known = pa.schema([]) if columns is None else columns
    decoder = _decoder(handle, source, known, handle.rules(columns))
    for portion in sampled:
        decoded = decoder.decode(portion)
        sample.refuse(decoded.refused)
        if decoded.unknown is not None:
            new = as_in_table(decoded.unknown, handle.rename)
            sample.new_columns = merged_proposals(sample.new_columns, new)
    if sample.new_columns is not None:
        known = merge_proposals(known, sample.new_columns)
    if len(known):
        _take_again(handle, source, known, sampled, sample)
    return sample


def alike(starts: dict[str, Offsets]) -> list[list[str]]:
    """Tables that go on from the same positions, and so have the same sample."""
    found: dict[frozenset[tuple[str, int]], list[str]] = {}
    for name, start in starts.items():
        found.setdefault(frozenset(start.items()), []).append(name)
    return list(found.values())


def by_table(
    tables: Tables, front: TableHandle, sampled: list[Events]
) -> list[tuple[TableHandle, list[Events]]]:
    """The events of each table of a route that streams with types of their own make; none for others."""
    spec = front.spec
    if spec is None or spec.routed is None or front.id.key:
        return []
    if not has_types_by_stream(spec, tables.sources_of(spec)):
        return []
    found: dict[Key, list[Events]] = {}
    for events in sampled:
        key, _ = key_of([events.stream], spec.routed)
        if key is not None and key not in tables.reserved(spec.routed):
            found.setdefault(key, []).append(events)
    return [(tables.routed_handle(front.name, key), own) for key, own in found.items()]


def _decoder(handle: TableHandle, source: Source, columns: pa.Schema, rules: Rules) -> EventDecoder:
    """What decodes events as a task does."""
    known = as_in_events(columns, handle.rename)
    key = key_column(source, handle.change_plan(None, None), handle.rename)
    return decoder_of(source, format_of(source), known, rules, key)


def _take_again(
    handle: TableHandle,
    source: Source,
    columns: pa.Schema,
    sampled: list[Events],
    sample: SampleOutcome,
) -> None:
    """What becomes of the events when they have these columns."""
    fields, shaping = handle.partition_fields, handle.shaping
    decoder = _decoder(handle, source, columns, handle.rules(columns))
    sample.dead_letters, sample.errors, sample.misfits = Counter(), [], Counter()
    decoded = [(portion, decoder.decode(portion)) for portion in sampled]
    for _, one in decoded:
        sample.refuse(one.refused)
    if shaping and (shaping.uses_sql or shaping.spec.reshapes):
        rows = shape_sample(handle, columns, decoded, sample)
    else:
        rows = [
            one.rows.rename_columns(as_in_table(one.rows.schema, handle.rename).names) for _, one in decoded
        ]
    sample.rows = sum(batch.num_rows for batch in rows)
    if not all(each.column in batch.schema.names for batch in rows for each in fields):
        raise TableError(f"table {handle.name}: events have no column for `partition_by`.")
    values: set[tuple[object, ...]] = set()
    for batch in rows if fields else ():
        shaped = add_partition_columns(batch, [each for each in fields if each.derived])
        values |= set(zip(*(shaped.column(each.name).to_pylist() for each in fields), strict=True))
    sample.partitions = len(values)


def sampled_projection(handle: TableHandle, samples: list[SampleOutcome]) -> Projection | None:
    """`select`, `where` and `expect` over what the sample shows, or over what is known without one."""
    assert handle.shaping is not None
    sampled = next((one.projection for one in samples if one.projection), None)
    return sampled or handle.shaping.settled(handle.rows_read())


def sampled_expectations(samples: list[SampleOutcome]) -> Expectations:
    """What the rules of `expect` say of all samples together."""
    return reduce(merged_counts, (one.expectations for one in samples), {})
