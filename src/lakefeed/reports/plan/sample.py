"""A sample of the events that wait: what they would become in a table, without writing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import reduce

import pyarrow as pa

from lakefeed.columns.naming import as_new
from lakefeed.columns.widening import holds_all, merge_proposals, merged_proposals
from lakefeed.engine.batch.plan import format_of, spans
from lakefeed.engine.followed_types import followed_type, replaces_all
from lakefeed.engine.task.decoding import EventDecoder, key_column
from lakefeed.engine.task.stream_columns import decoder_of
from lakefeed.engine.task.table_task import wider_columns, wider_in_table
from lakefeed.engine.task.wider_columns import WiderColumns
from lakefeed.errors import TableError
from lakefeed.events import EndsEarlier, Events, Offsets
from lakefeed.formats import Decoded, Rules
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.progress import Expectations
from lakefeed.handles.retype import some_convert
from lakefeed.handles.table_plan import TablePlan
from lakefeed.handles.tables import Tables
from lakefeed.handles.widening import plan as plan_widening
from lakefeed.pipeline.options.route import Key
from lakefeed.reports.plan.remedy import Remedy, remedy_for
from lakefeed.reports.plan.shaped_sample import SampleOutcome, shape_sample
from lakefeed.rows.partition import add_partition_columns
from lakefeed.rows.rename import Rename, as_in_events, as_in_table
from lakefeed.rows.route import key_of
from lakefeed.sources import Allowance, Source, SourceClient
from lakefeed.sources.subscription import has_types_by_stream
from lakefeed.sql.projection import Projection
from lakefeed.tables.detail.shaped import merged_counts

ADVISED_ABOVE = 0.1
"""The share of refused events from which on a plan says with which types they fit."""
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
            # What a batch must not have together, a sample may.
            with suppress(EndsEarlier):
                yield from source.read(split)


def take_sample(
    handle: TableHandle, source: Source, sampled: list[Events], start: Offsets | None = None
) -> SampleOutcome:
    """Decode events as a run from `start` would for this table: for what is new, then with that added."""
    handle.expect_replacement(is_replaced=replaces_all(handle, source, start or {}))
    sample = SampleOutcome(events=sum(map(len, sampled)))
    columns = handle.events()
    known = pa.schema([]) if columns is None else _followed(handle, columns, sampled)
    decoder = _decoder(handle, source, known, handle.rules(columns))
    looks = _wider_columns(handle, source, known)
    for portion in sampled:
        if portion.problem:
            raise TableError(f"table {handle.name}: {portion.problem}")
        decoded = decoder.decode(portion)
        sample.unfit |= portion.unfit.keys() & portion.texts.keys()
        sample.refuse(decoded.refused)
        if looks and (wider := looks[1].look(portion, decoded.refused).columns) is not None:
            sample.wider = merged_proposals(sample.wider, wider_in_table(looks[0], wider))
        if decoded.unknown is not None:
            sample.new_columns = merged_proposals(sample.new_columns, as_new(decoded.unknown))
    if sample.new_columns is not None:
        sample.new_columns = handle.named(sample.new_columns, known)
        known = merge_proposals(known, sample.new_columns)
    if sample.wider is not None:
        sample.widening = plan_widening(handle, sample.wider, _MOST_EVENTS)
        types = sample.widening.events
        known = pa.schema([one.with_type(types.get(one.name, one.type)) for one in known])
    if len(known):
        _take_again(handle, source, known, sampled, sample)
    return sample


def _wider_columns(
    handle: TableHandle, source: Source, known: pa.Schema
) -> tuple[TablePlan, WiderColumns] | None:
    """What a task looks at refused events with; None where no column of the table may get a wider type."""
    if not handle.exists or handle.spec is None or handle.spec.route:
        return None
    plan = handle.plan(handle.shape, {}, {})
    if not plan.widens:
        return None
    columns = as_in_events(known, plan.rename)
    key = key_column(source, handle.change_plan(None, None), plan.rename)
    found = wider_columns(
        plan, columns, lambda own, rules: decoder_of(source, format_of(source), own, rules, key)
    )
    return (plan, found) if found else None


def _followed(handle: TableHandle, columns: pa.Schema, sampled: list[Events]) -> pa.Schema:
    """The columns with the types that a run would give them, as their stream has others by now."""
    follows = handle.follows(columns) if handle.exists else frozenset()
    types, kept = {one.name: one.type for one in columns}, set[str]()
    for events in sampled if follows else ():
        own = events.columns.schema if events.columns is not None and events.stream is not None else ()
        for one in as_in_table(pa.schema(own), handle.rename):
            if one.name in kept or one.name not in follows or holds_all(types[one.name], one.type):
                continue
            new = one.type if handle.is_replaced else followed_type(types[one.name], one.type)
            if handle.is_replaced or some_convert(handle.table, one.with_type(new), _MOST_EVENTS):
                types[one.name] = new
            else:
                kept.add(one.name)
    return pa.schema([one.with_type(types[one.name]) for one in columns])


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
    rename = handle.rename_of(columns)
    known = as_in_events(columns, rename)
    key = key_column(source, handle.change_plan(None, None), rename)
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
    rules = handle.rules(columns)
    decoder = _decoder(handle, source, columns, rules)
    sample.dead_letters, sample.errors, sample.misfits = Counter(), [], Counter()
    sample.examples = {}
    decoded = [(portion, decoder.decode(portion)) for portion in sampled]
    for _, one in decoded:
        sample.refuse(one.refused)
    if sample.refused >= ADVISED_ABOVE * sample.events and not (source.types_by_stream or sample.unfit):
        sample.remedy = _remedy(handle, source, columns, sampled, sample.refused)
    if shaping and (shaping.uses_sql or shaping.spec.reshapes):
        rows = shape_sample(handle, columns, decoded, sample)
    else:
        rows = [Rename(handle.rename_of(columns), columns=columns).batch(one.rows) for _, one in decoded]
    sample.rows = sum(batch.num_rows for batch in rows)
    if not all(each.column in batch.schema.names for batch in rows for each in fields):
        raise TableError(f"table {handle.name}: events have no column for `partition_by`.")
    values: set[tuple[object, ...]] = set()
    for batch in rows if fields else ():
        shaped = add_partition_columns(batch, [each for each in fields if each.derived])
        values |= set(zip(*(shaped.column(each.name).to_pylist() for each in fields), strict=True))
    sample.partitions = len(values)


def _remedy(
    handle: TableHandle, source: Source, columns: pa.Schema, sampled: list[Events], refused: int
) -> Remedy:
    """The types with which more of the sampled events fit a table that has these columns."""
    rules, rename = replace(handle.rules(columns), new_column="add"), handle.rename_of(columns)
    key = key_column(source, handle.change_plan(None, None), rename)

    def decode(known: pa.Schema) -> Iterator[Decoded]:
        return map(decoder_of(source, format_of(source), known, rules, key).decode, sampled)

    found = remedy_for(as_in_events(columns, rename), refused, decode)
    # Every value of CSV is text.
    any_value = "string" if source.format is not None and source.format.type == "csv" else "json"
    types = {
        rename.get(name, name): any_value if kind == "json" else kind for name, kind in found.types.items()
    }
    return replace(found, types=types)


def sampled_projection(handle: TableHandle, samples: list[SampleOutcome]) -> Projection | None:
    """`select`, `where` and `expect` over what the sample shows, or over what is known without one."""
    assert handle.shaping is not None
    sampled = next((one.projection for one in samples if one.projection), None)
    return sampled or handle.shaping.settled(handle.rows_read())


def sampled_expectations(samples: list[SampleOutcome]) -> Expectations:
    """What the rules of `expect` say of all samples together."""
    return reduce(merged_counts, (one.expectations for one in samples), {})
