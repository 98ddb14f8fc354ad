"""Reading on a worker: changes of a range out of the slot, and rows of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.errors import SourceUnavailable
from lakefeed.events import Events, OffsetRange
from lakefeed.sources.postgres.connection import Connection, connect, postgres_errors
from lakefeed.sources.postgres.events import METADATA, Origins, PostgresEvents
from lakefeed.sources.postgres.positions import is_rows, partition_name, stream_of
from lakefeed.sources.postgres.replication.pgoutput import OPS, TRUNCATE, Changes, Decoder, Mask, Relation
from lakefeed.sources.postgres.replication.slot import slot_named
from lakefeed.sources.postgres.replication.slot_messages import messages
from lakefeed.sources.postgres.snapshot.chunk import Chunk
from lakefeed.sources.postgres.snapshot.orphans import completed
from lakefeed.sources.postgres.snapshot.rows import Rows, no_events, read_rows, relation_of
from lakefeed.sources.postgres.source import PostgresSource
from lakefeed.sources.postgres.values.table_columns import TableColumns
from lakefeed.sources.postgres.values.type_catalog import TypeCatalog


def read(source: PostgresSource, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
    """Yield the changes of the ranges, and then the rows of their chunks."""
    spans = {one.partition: one for one in ranges if not is_rows(one.partition)}
    rows = [one for one in ranges if is_rows(one.partition)]
    # Closed, whatever it is at: whoever has seen enough leaves in the middle.
    with closing(connect(source)) as connection, postgres_errors(source):
        emptied: dict[str, int] = {}
        late: dict[str, int] = {}
        if spans:
            yield from _changes(source, connection, spans, emptied, late)
        for span in rows:
            part = Rows.of(span.payload)
            name = partition_name(part.stream)
            part = part.before(late.get(name)).behind(emptied.get(name, 0))
            yield from read_rows(connection, span, part)


def _changes(
    source: PostgresSource,
    connection: Connection,
    spans: dict[str, OffsetRange],
    emptied: dict[str, int],
    late: dict[str, int],
) -> Iterator[Events]:
    first = next(iter(spans.values())).payload
    keys = {stream_of(name): tuple(span.payload["keys"]) for name, span in spans.items()}
    end = max(span.end for span in spans.values())
    with closing(connect(source)) as catalog:
        decoder, tables = Decoder(keys), TableColumns(TypeCatalog(catalog))
        for one in spans.values():
            if (shown := one.payload["shown"]) is not None:
                stream = stream_of(one.partition)
                yield no_events(tables, relation_of(catalog, stream, *shown), keys[stream])
        for piece in messages(connection, first["slot"], first["publication"], end):
            for changes in decoder.decode(piece):
                span = spans.get(partition_name(changes.relation.stream))
                if span is None:
                    continue
                kept = _kept(changes, span, emptied, late)
                changes = completed(catalog, changes, kept, keys[changes.relation.stream])
                if kept.any():
                    tables.know_later(changes.relation, catalog, first["publication"])
                    yield _events(tables, changes, kept, keys[changes.relation.stream])
        slot = slot_named(catalog, first["slot"])
        if slot is None or slot.confirmed > min(span.start for span in spans.values()):
            raise SourceUnavailable(f"the replication slot {first['slot']} was moved on while it was read")


def _kept(changes: Changes, span: OffsetRange, emptied: dict[str, int], late: dict[str, int]) -> Mask:
    """Which changes are of the range, and not in the chunk of rows that goes with it."""
    chunk = Chunk.of(span.payload["chunk"])
    before, within = changes.lsns < span.start, changes.lsns < span.end
    _note_truncation(changes, within, emptied)
    wanted = chunk.wanted(changes)
    kept = within & ~before if wanted is None else within & ~before & wanted
    found = before & chunk.late(changes)
    if found.any():
        late.setdefault(span.partition, int(changes.lsns[found].min()))
    return kept | found


def _note_truncation(changes: Changes, within: Mask, emptied: dict[str, int]) -> None:
    """Keep where tables were emptied: rows of a chunk that was read later come behind it."""
    found = changes.lsns[within & (changes.ops == TRUNCATE)]
    if len(found):
        name = partition_name(changes.relation.stream)
        emptied[name] = max(int(found.max()), emptied.get(name, 0))


def _events(tables: TableColumns, changes: Changes, kept: Mask, keys: tuple[str, ...]) -> PostgresEvents:
    mask = None if kept.all() else pa.array(kept)
    relation = changes.relation
    texts = [one if mask is None else one.filter(mask) for one in changes.texts]
    lsns, ordinals, times = changes.lsns[kept], changes.ordinals[kept], changes.times[kept]
    added = [
        pa.repeat(pa.scalar(relation.stream), len(lsns)),
        OPS.take(pa.array(changes.ops[kept])),
        pa.array(lsns),
        pa.array(ordinals),
        pa.array(times).cast(METADATA.field("_commit_time").type),
        pa.array(changes.xids[kept]),
        unchanged_names(relation, [one[kept] for one in changes.unchanged]),
    ]
    whole = changes.whole[kept]
    columns, unfit = tables.cast(relation, texts, added, None if whole.all() else whole)
    return PostgresEvents(columns, unfit, keys, Origins(relation.stream, lsns, ordinals, times))


def unchanged_names(relation: Relation, masks: Sequence[Mask]) -> pa.Array:
    """For each change the names of the columns that it says nothing about; null where there is none."""
    kind = METADATA.field("_unchanged").type
    silent = [(field.name, mask) for field, mask in zip(relation.fields, masks, strict=True) if mask.any()]
    if not silent:
        return pa.nulls(len(masks[0]) if masks else 0, kind)
    stacked = np.stack([mask for _, mask in silent], axis=1)
    ends = np.concatenate([[0], stacked.sum(axis=1).cumsum()]).astype(np.int32)
    names = pa.array([name for name, _ in silent]).take(pa.array(np.nonzero(stacked)[1]))
    lists: pa.Array = pa.ListArray.from_arrays(pa.array(ends), names).cast(kind)
    nothing: Any = pc.equal(pc.list_value_length(lists), 0)
    return pc.if_else(nothing, pa.scalar(None, kind), lists)
