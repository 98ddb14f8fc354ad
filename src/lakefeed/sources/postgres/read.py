"""Reading on a worker: changes of a range out of the slot, and rows of a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.errors import SourceUnavailable
from lakefeed.events import Completed, EndsEarlier, Events, OffsetRange, Offsets, Unfit
from lakefeed.sources.postgres.connection import LOCK_SECONDS, Connection, connect, postgres_errors
from lakefeed.sources.postgres.current_rows import with_current_values
from lakefeed.sources.postgres.events import METADATA, Origins, PostgresEvents
from lakefeed.sources.postgres.positions import is_rows, partition_name, stream_of
from lakefeed.sources.postgres.relations import key_of
from lakefeed.sources.postgres.replication.pgoutput import (
    DELETE,
    OPS,
    TRUNCATE,
    UPDATE,
    Changes,
    Decoder,
    Mask,
    Numbers,
    Relation,
)
from lakefeed.sources.postgres.replication.publication import GONE
from lakefeed.sources.postgres.replication.slot import slot_named
from lakefeed.sources.postgres.replication.slot_messages import messages
from lakefeed.sources.postgres.replication.stream import streamed
from lakefeed.sources.postgres.snapshot.chunk import Chunk
from lakefeed.sources.postgres.snapshot.orphans import completed
from lakefeed.sources.postgres.snapshot.rows import Rows, no_events, read_rows, relation_of
from lakefeed.sources.postgres.source import BEFORE, PostgresSource
from lakefeed.sources.postgres.values.column_names import event_name
from lakefeed.sources.postgres.values.table_columns import TableColumns
from lakefeed.sources.postgres.values.type_catalog import TypeCatalog
from lakefeed.sources.postgres.values.whole_rows import with_whole_rows
from lakefeed.text import first_line


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
            with _looking_again(part.stream):
                yield from read_rows(connection, span, part)


@contextmanager
def _looking_again(stream: str) -> Iterator[None]:
    """Raise SourceUnavailable where a table is not as it was planned: the next plan leaves it out."""
    try:
        yield
    except (*GONE, psycopg.errors.InsufficientPrivilege) as error:
        raise SourceUnavailable(f"{stream} cannot be read any more: {first_line(error)}") from error


def _changes(
    source: PostgresSource,
    connection: Connection,
    spans: dict[str, OffsetRange],
    emptied: dict[str, int],
    late: dict[str, int],
) -> Iterator[Events]:
    first = next(iter(spans.values())).payload
    keys = {stream_of(name): tuple(span.payload["keys"]) for name, span in spans.items()}
    whole_rows = {*filter(source.has_whole_rows, keys)}
    end = max(span.end for span in spans.values())
    with closing(connect(source)) as catalog:
        # It asks for rows of tables, which an ALTER TABLE may hold for hours.
        catalog.execute(f"SET lock_timeout = {round(LOCK_SECONDS * 1000)}".encode())
        decoder, tables = Decoder(keys, whole_rows), TableColumns(TypeCatalog(catalog), finite=source.finite)
        for one in spans.values():
            if (shown := one.payload["shown"]) is not None:
                stream = stream_of(one.partition)
                relation = relation_of(catalog, stream, *shown)
                nothing = no_events(tables, relation, keys[stream], whole_rows=stream in whole_rows)
                yield _with_no_before(nothing) if source.before else nothing
        slot, publication, parts = first["slot"], first["publication"], _Parts()
        stream_from = partial(streamed, source, slot, publication, end=end)
        for piece in messages(connection, slot, publication, end, stream_from):
            for changes in decoder.decode(piece):
                span = spans.get(partition_name(changes.relation.stream))
                if span is None or changes.relation.oid != span.payload["oid"]:
                    # Another table with the name of the one that was planned: the driver decides about it.
                    continue
                _refuse_outdated_keys(catalog, changes.relation, keys[changes.relation.stream])
                kept = _kept(changes, span, emptied, late)
                parts.note(changes, kept & (changes.lsns >= span.start), span)
                changes = completed(catalog, changes, kept, keys[changes.relation.stream])
                if kept.any() and not parts.ends:
                    tables.know_later(changes.relation, catalog, publication)
                    own_keys = keys[changes.relation.stream]
                    yield _events(source, tables, changes, kept, own_keys, catalog)
        if parts.ends:
            raise EndsEarlier(parts.ends)
        known = slot_named(catalog, slot)
        if known is None or known.confirmed > min(span.start for span in spans.values()):
            raise SourceUnavailable(f"the replication slot {slot} was moved on while it was read")


class _Parts:
    """Where the changes of a table must be parted, into those of this batch and those of the next.

    - A batch has changes by one key of a table. Those by the next one may be about the same rows: only one
      after the other finds them.
    - A table of the file may name a column that is dropped or gets another name, and is not read any further
      then. All changes from before are read.
    """

    def __init__(self) -> None:
        self._keys: dict[str, set[str]] = {}
        self._columns: dict[str, set[str]] = {}
        self.ends: Offsets = {}
        """By partition: where the first batch ends."""

    def note(self, changes: Changes, which: Mask, span: OffsetRange) -> None:
        """Look at the next changes of a table."""
        if not which.any():
            return
        stream, relation = changes.relation.stream, changes.relation
        columns, keys = {field.name for field in relation.fields}, set(relation.keys or span.payload["keys"])
        is_parted = self._keys.setdefault(stream, keys) != keys
        chunk = Chunk.of(span.payload["chunk"])
        # Changes are not parted from the rows of a snapshot that go with them.
        if chunk.start == chunk.end:
            is_parted |= not self._columns.get(stream, columns) <= columns
        self._columns[stream] = columns
        if is_parted:
            self.ends.setdefault(span.partition, int(changes.lsns[which].min()))


def _refuse_outdated_keys(catalog: Connection, relation: Relation, keys: tuple[str, ...]) -> None:
    """Raise SourceUnavailable where the table has another key by now than when the batch was planned."""
    if not relation.keys or set(relation.keys) == set(keys):
        return
    if key_of(catalog, relation.oid) != set(keys):
        raise _other_key(relation)


def _other_key(relation: Relation) -> SourceUnavailable:
    return SourceUnavailable(f"the key of {relation.stream} was changed while it was read")


def _kept(changes: Changes, span: OffsetRange, emptied: dict[str, int], late: dict[str, int]) -> Mask:
    """Which changes are of the range, and not in the chunk of rows that goes with it."""
    chunk = Chunk.of(span.payload["chunk"])
    before, within = changes.lsns < span.start, changes.lsns < span.end
    _note_truncation(changes, within, emptied)
    if chunk.lacks_key(changes.relation) and (within & ~before).any():
        raise _other_key(changes.relation)
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


def _with_no_before(events: PostgresEvents) -> PostgresEvents:
    """The columns of a table with one more, which has all of them."""
    columns = events.columns
    assert columns is not None
    if _has_before(events):
        return events
    own = columns.select([name for name in columns.schema.names if name not in METADATA.names])
    events.columns = columns.append_column(BEFORE, own.to_struct_array())
    return events


def _has_before(events: PostgresEvents) -> bool:
    """Whether the table has a column of this name itself: then no Delta table takes its rows."""
    assert events.columns is not None
    if BEFORE not in events.columns.schema.names:
        return False
    events.problem = events.problem or (
        f"{events.stream} has a column {BEFORE} of its own, and `before: true` adds one of this name.\n"
        "Rename it in the database, or remove `before` from the source."
    )
    return True


def _with_before(
    tables: TableColumns, changes: Changes, kept: Mask, events: PostgresEvents
) -> PostgresEvents:
    """The changes with one more column: the row as it was, where it was sent."""
    if _has_before(events):
        return events
    texts, sent = changes.before or ([pa.nulls(len(kept), pa.string())] * len(changes.texts), kept & False)
    sent = sent[kept]
    nothing = [pa.nulls(len(sent), field.type) for field in METADATA]
    numbers = np.zeros(len(sent), np.int64)
    chosen = [one.filter(pa.array(kept)) for one in texts]
    origins = Origins(changes.relation.stream, numbers, numbers)
    old = tables.events(changes.relation, chosen, nothing, (), origins, sent)
    assert old.columns is not None and events.columns is not None
    rows = old.columns.select([name for name in old.columns.schema.names if name not in METADATA.names])
    struct = pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema), mask=pa.array(~sent))
    unfit = dict(events.unfit)
    for found in old.unfit.values():
        # A row that cannot be held as it was is refused, as one that cannot be held as it is.
        known = unfit.get(BEFORE, found)
        unfit[BEFORE] = Unfit(known.where | found.where, pc.coalesce(known.texts, found.texts))
    events.columns, events.unfit = events.columns.append_column(BEFORE, struct), unfit
    return events


def _events(
    source: PostgresSource,
    tables: TableColumns,
    changes: Changes,
    kept: Mask,
    keys: tuple[str, ...],
    catalog: Connection | None = None,
) -> PostgresEvents:
    """The changes that are kept as events; with a connection, what they leave out can be asked for."""
    left_out = kept & np.logical_or.reduce([np.zeros(len(kept), np.bool_), *changes.unchanged])

    def complete(columns: Collection[str] | None) -> Completed:
        assert catalog is not None
        with postgres_errors(source):
            asked = with_current_values(catalog, changes, left_out, keys, columns)
        gone, unknown = (np.flatnonzero(mask[kept]).tolist() for mask in (asked.gone, asked.unknown))
        return Completed(_events(source, tables, asked.changes, kept, keys), gone, unknown)

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
    origins = Origins(relation.stream, lsns, ordinals, times)
    events = tables.events(relation, texts, added, keys, origins, None if whole.all() else whole)
    if source.has_whole_rows(relation.stream):
        counts, known = _counts(changes, kept)
        events = with_whole_rows(events, relation, texts, counts, known)
    if set(relation.keys) != set(keys):
        events.former_keys = tuple(map(event_name, relation.keys))
    if catalog is not None and left_out.any():
        events.complete = complete
    return _with_before(tables, changes, kept, events) if source.before else events


def _counts(changes: Changes, kept: Mask) -> tuple[Numbers, Mask]:
    """By how many changes make their row more or fewer, and which of them have it whole.

    An update that is no deletion and insertion came without the row as it was.
    """
    ops = changes.ops[kept]
    counts = np.select([ops == DELETE, ops == TRUNCATE], [-1, 0], 1)
    return counts, changes.whole[kept] & (ops != UPDATE)


def unchanged_names(relation: Relation, masks: Sequence[Mask]) -> pa.Array:
    """For each change the names of the columns that it says nothing about; null where there is none."""
    kind = METADATA.field("_unchanged").type
    silent = [
        (event_name(field.name), mask)
        for field, mask in zip(relation.fields, masks, strict=True)
        if mask.any()
    ]
    if not silent:
        return pa.nulls(len(masks[0]) if masks else 0, kind)
    stacked = np.stack([mask for _, mask in silent], axis=1)
    ends = np.concatenate([[0], stacked.sum(axis=1).cumsum()]).astype(np.int32)
    names = pa.array([name for name, _ in silent]).take(pa.array(np.nonzero(stacked)[1]))
    lists: pa.Array = pa.ListArray.from_arrays(pa.array(ends), names).cast(kind)
    nothing: Any = pc.equal(pc.list_value_length(lists), 0)
    return pc.if_else(nothing, pa.scalar(None, kind), lists)
