"""A keyed table without a pipeline: changes are staged and applied as the engine does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from lakefeed.columns.staged import STAGED, staged_schema
from lakefeed.files.parquet import FileTarget, TableWriter, staged_target
from lakefeed.stores import delta_options, open_store
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.keyed.layout import Layout
from lakefeed.tables.write.mode import Change, NewEntry, WriteMode
from lakefeed.tables.write.upsert import UpsertMode

OPS = {"upsert": 0, "delete": 1, "truncate": 2, "tombstone": 3, "moved": 4}


class KeyedTable:
    """A table that changes are applied to. A change is a mapping of its columns, and `op`, `unchanged`."""

    def __init__(
        self,
        folder: Path | str,
        schema: pa.Schema,
        rules: KeyRules,
        *,
        partition_by: Sequence[str] = (),
        layout: Layout | None = None,
        max_rows: int | None = None,
        mode: WriteMode | None = None,
        modes: type[UpsertMode] = UpsertMode,
        storage: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.path, self.rules, self._max_rows = str(folder), rules, max_rows
        self.storage = dict(storage or {})
        DeltaTable.create(
            self.path,
            schema,
            partition_by=list(partition_by),
            configuration=dict(properties or {}),
            storage_options=delta_options(self.path, self.storage),
        )
        self._layout, self._mode, self._modes = layout or CopyOnWrite(), mode, modes
        self.offsets: dict[str, int] = {}
        self.restart()

    def restart(self) -> None:
        """Know only what is in the table, as a new process does."""
        self.table = self.open()
        self.mode = self._mode or self._modes("shop", self.rules, self.target, self._layout, 3600.0)

    def open(self) -> LakeTable:
        found = LakeTable.open("rows", self.path, self.storage, open_store(self.path, self.storage))
        assert found is not None
        return found

    def target(self, shape: Shape) -> FileTarget:
        return FileTarget(shape.schema, shape.partition_columns, max_rows_per_file=self._max_rows, sync=False)

    def change(self, changes: Sequence[dict[str, Any]], *, replayed: bool = False) -> Change:
        """Stage the changes of a batch; `from` is their partition, and positions count on."""
        schema = staged_schema(self.table.schema)
        rows = []
        for one in changes:
            partition = one.get("from", "0")
            offset = one.get("offset", self.offsets.get(partition, 0))
            self.offsets[partition] = max(self.offsets.get(partition, 0), offset + 1)
            own = {name: one.get(name) for name in self.table.schema.names}
            staged = (OPS[one.get("op", "upsert")], partition, offset, one.get("unchanged"), None)
            staged += (one.get("time"), partition)
            rows.append(own | dict(zip(STAGED.names, staged, strict=True)))
        writer = TableWriter(self.table.store, staged_target(self.target(self.table.shape)))
        for half in (rows[::2], rows[1::2]):
            if half:
                writer.write(pa.RecordBatch.from_pylist(half, schema))
                writer.flush()
        positions = {f"shop/clicks/{name}": at - 1 for name, at in self.offsets.items()}
        if replayed:
            positions = {}
        expected = {name: self.table.transactions.get(name) for name in positions}
        told = {"pipeline": "shop", "source": "clicks", "ranges": {}}
        return replace(Change(writer.close(), positions, expected, told), replayed=replayed)

    def apply(self, *changes: dict[str, Any], replayed: bool = False) -> NewEntry:
        """Apply a batch; what the entry of the log holds."""
        return commit(self.table, self.change(changes, replayed=replayed), self.mode, retries=2).entry

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order of their keys."""
        delta = DeltaTable(self.path, storage_options=delta_options(self.path, self.storage))
        found = pa.RecordBatchReader.from_stream(delta.scan()).read_all().to_pylist()
        return sorted(found, key=lambda row: tuple(map(repr, (row[name] for name in self.rules.keys))))
