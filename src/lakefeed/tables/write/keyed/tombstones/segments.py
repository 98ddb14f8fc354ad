"""Files of tombstones, in the order of the hashes of their keys.

Memory holds the hashes, and the rows of the newest files. Looking for keys opens no file that has none of
them, and reads only row groups that may have one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefeed.columns.staged import FOLDER
from lakefeed.errors import TableError
from lakefeed.stores import local_folder, store_errors, sync
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.keys import Mask, Numbers, one_array, taken
from lakefeed.tables.write.keyed.tombstones.event_times import (
    Clocks,
    clocks_of,
    newest_of,
    with_expired,
)
from lakefeed.tables.write.keyed.tombstones.key_hashes import Hashes, key_hashes

TOMBSTONES_FOLDER = f"{FOLDER}/tombstones"
_HASH = "_lakefeed_key_hash"
_KEYS = b"lakefeed.keys"
"""The columns of the hashed keys, in their order. Files of earlier releases have no hashes."""
_CLOCKS = b"lakefeed.clocks"
_OPTIONAL = b"lakefeed.optional"
_WINDOW_ROWS = 32_000
"""So many rows are merged at a time; they become a row group."""
_READ_ROWS = 8_000


Retype = Callable[[pa.Array, pa.Field], pa.Array]
"""Values in the type that their column has by now, null where they do not fit: as rows are converted."""


@dataclass(frozen=True)
class Columns:
    """What the tombstones of a table look like."""

    schema: pa.Schema
    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    retype: Retype
    optional: Callable[[pa.Table], Mask] | None = None
    """Which rows may be forgotten where there are too many."""


@dataclass(frozen=True)
class Segment:
    """One file of tombstones."""

    number: int
    told: Mapping[bytes, bytes]
    """The metadata of the file."""
    hashes: Hashes
    """The hashes of all keys, in ascending order."""
    clocks: Clocks
    truncations: pa.Table
    """The rows without a key."""
    size: int = 0
    """Bytes of all rows in memory."""
    optional: int = 0
    """Bytes of those that may be forgotten."""
    rows: pa.Table | None = field(default=None, repr=False)
    """All rows in the order of the hashes; None where only the file has them."""
    places: Numbers | None = None
    """The row in the file of each hash; None where the file has the order of the hashes."""
    has_other_keys: bool = False
    """Whether its tombstones are of another key, and stay in the file; it has truncations only."""

    def __len__(self) -> int:
        """How many rows it has."""
        return len(self.hashes)

    @property
    def has_optional_only(self) -> bool:
        """Whether all of its rows may be forgotten."""
        return self.optional == self.size > 0

    @property
    def is_ordered(self) -> bool:
        """Whether its rows can be read in the order of the hashes."""
        return not self.has_other_keys and (self.rows is not None or self.places is None)

    def among(self, hashes: Hashes) -> Numbers:
        """The indexes of its hashes that are among these, which are distinct and ascend."""
        first = np.searchsorted(self.hashes, hashes, "left")
        counts = np.searchsorted(self.hashes, hashes, "right") - first
        starts = np.cumsum(counts) - counts
        found: Numbers = np.arange(int(counts.sum())) + np.repeat(first - starts, counts)
        return found

    def taken(self, table: LakeTable, columns: Columns, indexes: Numbers) -> pa.Table:
        """The rows of the hashes at these indexes, in no order."""
        if self.rows is not None:
            return taken(self.rows, indexes)
        places = indexes if self.places is None else np.sort(self.places[indexes])
        parts = [columns.schema.empty_table()]
        with opened(table, self.number) as reader:
            start = 0
            for group in range(reader.num_row_groups):
                end = start + reader.metadata.row_group(group).num_rows
                own = places[np.searchsorted(places, start) : np.searchsorted(places, end)] - start
                if len(own):
                    parts += [_fitted(one, columns) for one in _chosen(reader, group, own)]
                start = end
        return pa.concat_tables(parts)

    def in_order(self, table: LakeTable, columns: Columns) -> Iterator[pa.Table]:
        """All rows in the order of the hashes, piece by piece."""
        if self.rows is not None:
            yield self.rows
            return
        with opened(table, self.number) as reader:
            for batch in reader.iter_batches(_READ_ROWS):
                yield _fitted(pa.Table.from_batches([batch]), columns)


def path_of(number: int) -> str:
    """The path of a file of tombstones in its table."""
    return f"{TOMBSTONES_FOLDER}/{number}.parquet"


@contextmanager
def opened(table: LakeTable, number: int) -> Iterator[pq.ParquetFile]:
    """A file of tombstones. Raises TableError where it is missing."""
    path = path_of(number)
    with store_errors(table.path):
        try:
            stream = table.store.open_input_file(path)
        except FileNotFoundError:
            raise TableError(
                f"{table.path}: {path} is missing. It holds which rows were deleted; without it, "
                "late changes would bring them back.\n"
                "Bring it back from a backup, or rewind the table to a version that does not need it."
            ) from None
        with stream:
            yield pq.ParquetFile(stream)


def read_segment(table: LakeTable, number: int, columns: Columns, room: int) -> Segment:
    """What a file has; its rows stay in memory if they take no more than `room` bytes."""
    with opened(table, number) as reader:
        there, footer = reader.schema_arrow, reader.metadata
        told = dict(footer.metadata or {})
        size = sum(footer.row_group(at).total_byte_size for at in range(footer.num_row_groups))
        empty = columns.schema.empty_table()
        if not {*columns.keys} <= {*there.names}:
            return _with_other_keys(reader, number, told, columns)
        is_ordered = json.loads(told.get(_KEYS, b"[]")) == list(columns.keys) and all(
            there.field(name).type == columns.schema.field(name).type for name in columns.keys
        )
        if size <= room:
            found = _of_rows(number, told, _fitted(reader.read(), columns), columns, is_ordered)
            return found if found.size <= room else replace(found, rows=None)
        if is_ordered:
            hashes, places = _read_hashes(reader), None
            clocks = _told_clocks(told)
        else:
            hashes, places, clocks = _computed(reader, columns)
    found = Segment(number, told, hashes, clocks, empty, size, int(told.get(_OPTIONAL, 0)), None, places)
    without_key = np.unique(key_hashes(_without_key(columns), columns.keys))
    rows = found.taken(table, columns, found.among(without_key))
    return replace(found, truncations=truncations_of(rows, columns))


def truncations_of(rows: pa.Table, columns: Columns) -> pa.Table:
    """The rows without a key."""
    return rows.filter(rows.column(columns.keys[0]).is_null()).combine_chunks()


def write_segment(
    table: LakeTable,
    number: int,
    columns: Columns,
    windows: Iterator[pa.Table],
    told: Mapping[bytes, bytes],
    room: int,
) -> Segment:
    """Write a file. `windows` are its rows, which have the order of their hashes from one to the next."""
    whole = {**told, _KEYS: json.dumps(columns.keys).encode()}
    schema = columns.schema.append(pa.field(_HASH, pa.uint64())).with_metadata(whole)
    hashes, truncations = [np.zeros(0, np.uint64)], [columns.schema.empty_table()]
    clocks: Clocks = {}
    rows: list[pa.Table] | None = []
    size = optional = 0
    with _created(table, path_of(number)) as sink:
        plain = [name for name in columns.schema.names if name not in columns.keys]
        writer = pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            use_dictionary=plain,
            column_encoding={_HASH: "DELTA_BINARY_PACKED"},
        )
        with writer:
            for window in windows:
                own = key_hashes(window, columns.keys)
                hashes.append(own)
                writer.write_table(pa.Table.from_arrays([*window.columns, pa.array(own)], schema=schema))
                clocks = newest_of(clocks, clocks_of(window))
                truncations.append(truncations_of(window, columns))
                size += window.nbytes
                optional += _optional_bytes(window, columns)
                rows = None if rows is None or size > room else [*rows, window]
            told = {_CLOCKS: json.dumps(clocks).encode(), _OPTIONAL: str(optional).encode()}
            writer.add_key_value_metadata(told)
    held = None if rows is None else pa.concat_tables([columns.schema.empty_table(), *rows]).combine_chunks()
    every = pa.concat_tables(truncations).combine_chunks()
    return Segment(number, whole | told, np.concatenate(hashes), clocks, every, size, optional, held)


def write_names(table: LakeTable, number: int, told: Mapping[bytes, bytes]) -> None:
    """Write a file without tombstones, which says something of other files."""
    schema = pa.schema([(_HASH, pa.uint64())]).with_metadata(dict(told))
    with _created(table, path_of(number)) as sink:
        pq.write_table(schema.empty_table(), sink)


def in_memory(number: int, rows: pa.Table, columns: Columns) -> Segment:
    """Rows that are in no file yet."""
    return _of_rows(number, {}, rows, columns, is_ordered=False)


def merged(
    table: LakeTable,
    columns: Columns,
    segments: Sequence[Segment],
    kept: Callable[[Segment, pa.Table], pa.Table],
    distinct: Callable[[pa.Table], pa.Table],
) -> Iterator[pa.Table]:
    """The rows of several segments that are kept, each once, in the order of their hashes.

    A window of hashes at a time: equal keys have equal hashes, so that they meet in one window.
    """
    count = max(1, -(-sum(len(one) for one in segments) // _WINDOW_ROWS))
    readers = [_Rows(one.in_order(table, columns), columns.schema) for one in segments]
    starts = [0] * len(segments)
    for number in range(1, count + 1):
        parts = []
        for at, segment in enumerate(segments):
            edge = np.uint64(min(number * (2**64 // count), 2**64 - 1))
            end = len(segment) if number == count else int(np.searchsorted(segment.hashes, edge))
            parts.append(kept(segment, readers[at].next(end - starts[at])))
            starts[at] = end
        rows = distinct(pa.concat_tables(parts).combine_chunks())
        if rows.num_rows:
            yield taken(rows, np.argsort(key_hashes(rows, columns.keys), kind="stable"))


class _Rows:
    """Rows that come piece by piece, given out in other portions."""

    def __init__(self, pieces: Iterator[pa.Table], schema: pa.Schema) -> None:
        self._pieces, self._left = pieces, schema.empty_table()

    def next(self, count: int) -> pa.Table:
        """The next so many rows, which there are."""
        parts, found = [self._left], self._left.num_rows
        while found < count:
            piece = next(self._pieces)
            parts.append(piece)
            found += piece.num_rows
        whole = pa.concat_tables(parts)
        self._left = whole.slice(count)
        return whole.slice(0, count)


def _of_rows(
    number: int, told: Mapping[bytes, bytes], rows: pa.Table, columns: Columns, is_ordered: bool
) -> Segment:
    hashes, places = key_hashes(rows, columns.keys), None
    if not is_ordered:
        places = np.argsort(hashes, kind="stable")
        hashes, rows = hashes[places], taken(rows, places)
    rows = rows.combine_chunks()
    clocks, truncations = clocks_of(rows), truncations_of(rows, columns)
    optional = _optional_bytes(rows, columns)
    return Segment(number, told, hashes, clocks, truncations, rows.nbytes, optional, rows, places)


def _optional_bytes(rows: pa.Table, columns: Columns) -> int:
    if columns.optional is None or not rows.num_rows:
        return 0
    return int(rows.nbytes * columns.optional(rows).mean())


def _without_key(columns: Columns) -> pa.Table:
    nulls = [pa.nulls(1, columns.schema.field(name).type) for name in columns.keys]
    return pa.Table.from_arrays(nulls, columns.keys)


def _read_hashes(reader: pq.ParquetFile) -> Hashes:
    hashes, start = np.empty(reader.metadata.num_rows, np.uint64), 0
    for batch in reader.iter_batches(columns=[_HASH]):
        hashes[start : start + batch.num_rows] = batch.column(0).to_numpy()
        start += batch.num_rows
    return hashes


def _told_clocks(told: Mapping[bytes, bytes]) -> Clocks:
    return {name: tuple(at) for name, at in json.loads(told.get(_CLOCKS, b"{}")).items()}


def _with_other_keys(
    reader: pq.ParquetFile, number: int, told: Mapping[bytes, bytes], columns: Columns
) -> Segment:
    """A file whose tombstones are of other keys: its rows without a key stand for every key.

    They are few, and stay in memory: the file has them in other columns.
    """
    own = [name for name in json.loads(told.get(_KEYS, b"[]")) if name in reader.schema_arrow.names]
    parts = [columns.schema.empty_table()]
    for batch in reader.iter_batches(_READ_ROWS) if own else ():
        rows = pa.Table.from_batches([batch.filter(batch.column(own[0]).is_null())])
        for name in columns.keys:
            if name in rows.schema.names:
                rows = rows.drop_columns([name])
            rows = rows.append_column(name, pa.nulls(rows.num_rows, columns.schema.field(name).type))
        parts.append(_fitted(rows, columns))
    found = _of_rows(number, told, pa.concat_tables(parts), columns, is_ordered=False)
    return replace(found, clocks=newest_of(found.clocks, _told_clocks(told)), size=0, has_other_keys=True)


def _computed(reader: pq.ParquetFile, columns: Columns) -> tuple[Hashes, Numbers, Clocks]:
    """The hashes of a file that has none, or those of keys of other types; where their rows are."""
    parts = [np.zeros(0, np.uint64)]
    clocks: Clocks = {}
    for batch in reader.iter_batches(_READ_ROWS):
        rows = _fitted(pa.Table.from_batches([batch]), columns)
        parts.append(key_hashes(rows, columns.keys))
        clocks = newest_of(clocks, clocks_of(rows))
    hashes = np.concatenate(parts)
    places = np.argsort(hashes, kind="stable")
    return hashes[places], places, clocks


def _chosen(reader: pq.ParquetFile, group: int, places: Numbers) -> Iterator[pa.Table]:
    """Rows of one row group, by their places in it, which ascend."""
    start = 0
    for batch in reader.iter_batches(_READ_ROWS, row_groups=[group]):
        end = start + batch.num_rows
        own = places[np.searchsorted(places, start) : np.searchsorted(places, end)] - start
        if len(own):
            yield pa.Table.from_batches([batch.take(pa.array(own))])
        start = end


def _fitted(rows: pa.Table, columns: Columns) -> pa.Table:
    """Stored rows in the columns of now. Of a column that was added since, they know nothing.

    A row whose key does not fit any more stays in its place, and has expired: without a key, it would be a
    truncation. One whose sequence does not fit is newer than everything, unless it is a truncation.
    """
    found, expired = [], np.zeros(rows.num_rows, np.bool_)
    for own in columns.schema:
        if own.name not in rows.schema.names:
            found.append(pa.nulls(rows.num_rows, own.type))
            continue
        there = one_array(rows.column(own.name))
        column = there if there.type == own.type else columns.retype(there, own)
        if column.null_count > there.null_count:
            lost = pc.and_(column.is_null(), there.is_valid())
            if own.name in columns.keys:
                expired |= lost.to_numpy(zero_copy_only=False)
            elif own.name in columns.sequence:
                lost = pc.and_(lost, one_array(rows.column(columns.keys[0])).is_valid())
                column = pc.if_else(lost, _largest(own.type), column)
        found.append(column)
    fitted = pa.Table.from_arrays(found, schema=columns.schema)
    return fitted if not expired.any() else with_expired(fitted, pa.array(expired))


def _largest(kind: pa.DataType) -> pa.Scalar:
    """What no value of a type is larger than."""
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal((0, (9,) * kind.precision, -kind.scale)), kind)
    if pa.types.is_floating(kind):
        return pa.scalar(float("inf"), kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(True)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        number = pa.int64() if kind.bit_width == 64 else pa.int32()
        most = 2 ** (kind.bit_width - 1) - 1
        return pa.scalar(most, kind if pa.types.is_integer(kind) else number).cast(kind)
    return pa.scalar(("\U0010ffff" * 16).encode()).cast(kind)


@contextmanager
def _created(table: LakeTable, path: str) -> Iterator[pa.NativeFile]:
    """A new file, durable at the end; none where writing fails."""
    folder = local_folder(table.store)
    parent = str(PurePosixPath(path).parent)
    with store_errors(table.path):
        if folder is not None:
            (folder / parent).mkdir(parents=True, exist_ok=True)
        try:
            with table.store.open_output_stream(path) as sink:
                yield sink
        except BaseException:
            with suppress(Exception):
                table.store.delete_file(path)
            raise
        if folder is not None and table.durable:
            sync([folder / path])
            sync([folder / parent, folder / FOLDER, folder])
