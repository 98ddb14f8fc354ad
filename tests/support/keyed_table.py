"""A keyed table without a pipeline: changes are staged and applied as the engine does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from lakefeed.columns.staged import STAGED, staged_schema
from lakefeed.errors import UnknownValues
from lakefeed.files.parquet import FileTarget, TableWriter, staged_target
from lakefeed.handles.retype import retyped
from lakefeed.stores import delta_options, open_store
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.deduplicate import DeduplicateMode
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.keyed.layout import Layout
from lakefeed.tables.write.mode import Change, NewEntry, WriteMode
from lakefeed.tables.write.upsert import UpsertMode

OPS = {"upsert": 0, "delete": 1, "truncate": 2, "tombstone": 3, "moved": 4}


class KeyedTable:
    """A table that changes are applied to. A change is a mapping of its columns, and `op`, `unchanged`."""

    pipeline = "shop"

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
        range_bytes: int | None = None,
    ) -> None:
        self._range_bytes = range_bytes
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
        self.mode = self._mode or self._modes(
            self.pipeline, self.rules, self.target, self._layout, 3600.0, retyped
        )
        if self._range_bytes is not None and isinstance(self.mode, UpsertMode | DeduplicateMode):
            self.mode.range_bytes = self._range_bytes

    def beside(self, pipeline: str) -> KeyedTable:
        """The same table, as another pipeline writes it."""
        other = copy(self)
        other.pipeline, other.offsets = pipeline, {}
        other.restart()
        return other

    def open(self) -> LakeTable:
        found = LakeTable.open("rows", self.path, self.storage, open_store(self.path, self.storage))
        assert found is not None
        return found

    def target(self, shape: Shape) -> FileTarget:
        return FileTarget(shape.schema, shape.partition_columns, max_rows_per_file=self._max_rows, sync=False)

    def change(self, changes: Sequence[dict[str, Any]], *, replayed: bool = False) -> Change:
        """Stage the changes of a batch; `from` is their partition, and offsets count on."""
        schema = staged_schema(self.table.schema)
        rows = []
        for one in changes:
            partition = one.get("from", "0")
            offset = one.get("offset", self.offsets.get(partition, 0))
            self.offsets[partition] = max(self.offsets.get(partition, 0), offset + 1)
            own = {name: one.get(name) for name in self.table.schema.names}
            staged = (OPS[one.get("op", "upsert")], partition, offset, one.get("ordinal", 0))
            staged += (one.get("unchanged"), one.get("keys"), one.get("time"), one.get("former"))
            rows.append(own | dict(zip(STAGED.names, staged, strict=True)))
        writer = TableWriter(self.table.store, staged_target(self.target(self.table.shape)))
        for half in (rows[::2], rows[1::2]):
            if half:
                writer.write(pa.RecordBatch.from_pylist(half, schema))
                writer.flush()
        positions = {f"{self.pipeline}/clicks/{name}": at - 1 for name, at in self.offsets.items()}
        if replayed:
            positions = {}
        expected = {name: self.table.transactions.get(name) for name in positions}
        told = {"pipeline": self.pipeline, "source": "clicks", "ranges": {}}
        if replayed:
            # Dead letters of several sources may be one commit.
            told = {"pipeline": self.pipeline, "kind": "replay"}
        former = {tuple(one["former"]): None for one in changes if one.get("former")}
        made = Change(writer.close(), positions, expected, told, former_keys=list(former))
        return replace(made, replayed=replayed)

    def apply(self, *changes: dict[str, Any], replayed: bool = False) -> NewEntry:
        """Apply a batch; what the entry of the log holds."""
        return commit(self.table, self.change(changes, replayed=replayed), self.mode, retries=2).entry

    def apply_known(self, *changes: dict[str, Any]) -> tuple[NewEntry, list[dict[str, Any]]]:
        """Apply a batch but for changes that leave out what nothing has; what was applied."""
        left = list(changes)
        while True:
            numbered, offsets = [], dict(self.offsets)
            for one in left:
                partition = one.get("from", "0")
                numbered.append(one | {"offset": offsets.get(partition, 0)})
                offsets[partition] = offsets.get(partition, 0) + 1
            try:
                return self.apply(*numbered), left
            except UnknownValues as error:
                positions = [(one.get("from", "0"), one["offset"], one.get("ordinal", 0)) for one in numbered]
                assert error.changes and error.changes <= set(positions)
                left = [one for one, at in zip(left, positions, strict=True) if at not in error.changes]

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in the order of their keys."""
        delta = DeltaTable(self.path, storage_options=delta_options(self.path, self.storage))
        found = pa.RecordBatchReader.from_stream(delta.scan()).read_all().to_pylist()
        return sorted(found, key=lambda row: tuple(map(repr, (row[name] for name in self.rules.keys))))
