"""Tombstones: which keys were deleted and when, so that a late older change does not bring a row back.

They lie beside the table in files that no reader of the table sees, one for each commit with deletions. A
`txn` of that commit names the newest file, which names the older ones that still count. So tombstones come
and go with the version that they belong to. Many files become one, and what has expired is left out then.
A tombstone without a key is a truncation: it stands for every key.

Two clocks must say that a tombstone has expired: that of this machine, by when it was written, and that of
its events (see `event_times`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.columns.staged import CLOCK, FOLDER, OFFSET, PARTITION, STAGED, TIME
from lakefeed.errors import TableError
from lakefeed.stores import local_folder, store_errors, sync
from lakefeed.tables.positions import tombstone_heads
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.keys import one_array
from lakefeed.tables.write.keyed.tombstones.event_times import of_source, within

TOMBSTONES_FOLDER = f"{FOLDER}/tombstones"
DELETED_AT = "_lakefeed_deleted_at"
"""When the deletion was applied, in microseconds since 1970."""

TOLD = pa.schema(
    [*(STAGED.field(name) for name in (PARTITION, OFFSET, TIME, CLOCK)), (DELETED_AT, pa.int64())]
)
"""What is told of every tombstone: the position and the time of its event, and when it was applied."""

_OLDER = b"lakefeed.older"
_AGE = b"lakefeed.tombstones"
"""For how many seconds tombstones count, by the file that was in force when they were written."""
_MOST_SEGMENTS = 20
"""So many files are read at a start at most; then they become one."""


class Tombstones:
    """The tombstones of one table, as one process knows them. Used by one thread at a time."""

    def __init__(self, rules: KeyRules, age: float) -> None:
        self._rules, self._age = rules, age
        self._known: tuple[tuple[int, ...], pa.Table, list[int]] | None = None
        self._written: tuple[int, pa.Table, list[int]] | None = None
        """What is known once the log names the file that was written last."""

    def schema(self, table: LakeTable) -> pa.Schema:
        """Keys, the sequence, and what is told of every tombstone."""
        names = dict.fromkeys([*self._rules.keys, *self._rules.sequence_by])
        own = [table.schema.field(name).with_nullable(True) for name in names]
        return pa.schema([*own, *TOLD])

    def load(self, table: LakeTable, oldest: Mapping[str, int] = MappingProxyType({})) -> pa.Table:
        """All that count at the version of the table for a batch with these oldest events."""
        heads = tombstone_heads(table.transactions)
        if self._known and not self._known[1].schema.equals(self.schema(table)):
            # The table has got a column since, or another type.
            self._known = self._written = None
        if self._known is None or self._known[0] != heads:
            written = self._written
            if self._known and written and {written[0]} == {*heads} - {*self._known[0]}:
                self._known = heads, written[1], written[2]
            else:
                self._known = heads, *self._read(table, heads)
        rows, age = self._known[1], int(self._age * 1e6)
        written = one_array(pc.greater(rows.column(DELETED_AT), _now() - age)).to_numpy(zero_copy_only=False)
        if written.all():
            return rows
        return rows.filter(pa.array(written | within(rows, age, oldest)))

    def add(
        self, table: LakeTable, new: pa.Table, source: str | None, oldest: Mapping[str, int]
    ) -> tuple[int, str]:
        """Write new ones, with the columns of `schema` but the last; the number that the log is to name."""
        before = self.load(table, oldest)
        assert self._known is not None
        heads, segments = self._known[0], self._known[2]
        schema = self.schema(table)
        stamped = of_source(new, source)
        stamped = stamped.append_column(DELETED_AT, pa.array(np.full(new.num_rows, _now()), pa.int64()))
        stamped = stamped.cast(schema)
        number = max(_now(), *(at + 1 for at in heads), 0)
        whole = len(segments) >= _MOST_SEGMENTS
        every = pa.concat_tables([before, stamped])
        if whole:
            every = self._worth_keeping(every)
        rows, older = (every, []) if whole else (stamped, segments)
        path = _path(number)
        self._written = number, every, [*older, number]
        told = {_OLDER: json.dumps(older), _AGE: json.dumps(self._age)}
        _write(table, path, rows.replace_schema_metadata(told))
        return number, path

    def _worth_keeping(self, every: pa.Table) -> pa.Table:
        """What is left of all when many files become one."""
        return every

    def _read(self, table: LakeTable, heads: tuple[int, ...]) -> tuple[pa.Table, list[int]]:
        found: dict[int, pa.Table] = {}
        for head in heads:
            found[head], older = self._segment(table, head)
            # What a file names is all there is: those that it names need not be asked.
            for number in older:
                if number not in found:
                    found[number], _ = self._segment(table, number)
        return pa.concat_tables([self.schema(table).empty_table(), *found.values()]), sorted(found)

    def _segment(self, table: LakeTable, number: int) -> tuple[pa.Table, list[int]]:
        path, schema = _path(number), self.schema(table)
        with store_errors(table.path):
            try:
                with table.store.open_input_file(path) as stream:
                    rows = pq.ParquetFile(stream).read()
            except FileNotFoundError:
                if number > _now() - int(self._age * 1e6):
                    raise TableError(
                        f"{table.path}: {path} is missing. It tells which rows were deleted; without it, "
                        "late changes would bring them back.\n"
                        "Bring it back from a backup, or rewind the table."
                    ) from None
                # All that it held has expired.
                return schema.empty_table(), []
        older = json.loads((rows.schema.metadata or {}).get(_OLDER, b"[]"))
        if any(_fitting(rows, schema.field(name)) is None for name in self._rules.keys):
            # They are of another key than the table has now: without it, each would stand for all rows.
            return schema.empty_table(), older
        # Of a sequence that was added since, it knows nothing.
        columns = [
            pa.nulls(rows.num_rows, field.type) if found is None else found
            for field, found in ((field, _fitting(rows, field)) for field in schema)
        ]
        return pa.Table.from_arrays(columns, schema=schema), older


def _fitting(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | None:
    """A column in the type that it has by now; None where there is none, or one that does not become it."""
    if field.name not in rows.schema.names:
        return None
    try:
        return rows.column(field.name).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def referenced(store: pafs.FileSystem, heads: tuple[int, ...]) -> set[str]:
    """The paths of all files of tombstones that count where these are the newest."""
    older = [json.loads(_told(store, _path(head)).get(_OLDER, b"[]")) for head in heads]
    return {_path(number) for number in {*heads, *(one for some in older for one in some)}}


def counted_for(store: pafs.FileSystem, heads: tuple[int, ...], paths: Iterable[str]) -> dict[str, float]:
    """For how many seconds what is in each of these files counts, once it was written.

    Older versions of the table may name files that the newest one does not name any more.
    """
    newest = [float(_told(store, _path(head)).get(_AGE, 0)) for head in heads]
    return {path: max(float(_told(store, path).get(_AGE, 0)), *newest, 0.0) for path in paths}


def _path(number: int) -> str:
    return f"{TOMBSTONES_FOLDER}/{number}.parquet"


def _told(store: pafs.FileSystem, path: str) -> dict[bytes, bytes]:
    """What a file says about itself; nothing where there is none."""
    with suppress(FileNotFoundError), store.open_input_file(path) as one:
        return dict(pq.ParquetFile(one).schema_arrow.metadata or {})
    return {}


def _write(table: LakeTable, path: str, rows: pa.Table) -> None:
    folder = local_folder(table.store)
    parent = str(PurePosixPath(path).parent)
    with store_errors(table.path):
        if folder is not None:
            (folder / parent).mkdir(parents=True, exist_ok=True)
        with table.store.open_output_stream(path) as sink:
            pq.write_table(rows, sink, compression="zstd")
        if folder is not None and table.durable:
            sync([folder / path])
            sync([folder / parent, folder / FOLDER, folder])


def _now() -> int:
    return time.time_ns() // 1_000
