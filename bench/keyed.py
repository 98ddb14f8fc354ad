"""A table of changes without a pipeline: batches are staged and applied as the engine does it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.columns.staged import STAGED, UPSERT, staged_schema
from lakefeed.files.parquet import TableWriter, staged_target
from lakefeed.handles.retype import retyped
from lakefeed.tables.allow_vectors import allow_vectors
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.deduplicate import DedupeRules, DeduplicateMode
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.keyed.merge_on_read import MergeOnRead
from lakefeed.tables.write.mode import Change, WriteMode
from lakefeed.tables.write.upsert import UpsertMode
from support.keyed_table import KeyedTable

LAYOUTS = {"copy_on_write": CopyOnWrite, "merge_on_read": MergeOnRead}


class Keyed:
    """A table with the key `id` and the sequence `seq`; a history if it has the columns of one."""

    def __init__(self, path: Path, mode: str, layout: str, max_rows: int) -> None:
        table = KeyedTable.__new__(KeyedTable)
        table.path, table.storage, table._max_rows = str(path), {}, max_rows
        self.table, self._target = table.open(), table.target
        if layout == "merge_on_read":
            allow_vectors(self.table, {"kind": "alter"})
        laid = LAYOUTS[layout]()
        self._mode: WriteMode
        if mode == "deduplicate":
            self._mode = DeduplicateMode(DedupeRules(("id",)), self._target)
        elif mode == "history":
            rules = HistoryRules(("id",), ("seq",))
            self._mode = HistoryMode("shop", rules, self._target, laid, 3600.0, retyped)
        else:
            self._mode = UpsertMode("shop", KeyRules(("id",), ("seq",)), self._target, laid, 3600.0, retyped)

    def staged(self, rows: pa.Table, op: int = UPSERT, *, all_of_them: bool = False) -> Change:
        """Write a batch as its tasks do; `op` is what its first change does, or all of them."""
        count = rows.num_rows
        ops = np.full(count, op if all_of_them else UPSERT)
        ops[0] = op
        told = [
            pa.array(ops, pa.int8()),
            pa.array(["0"] * count),
            pa.array(np.arange(count)),
            *(pa.nulls(count, field.type) for field in list(STAGED)[3:]),
        ]
        whole = pa.Table.from_arrays([*rows.columns, *told], schema=staged_schema(rows.schema))
        target = replace(self._target(self.table.shape), schema=rows.schema)
        writer = TableWriter(self.table.store, staged_target(target))
        for batch in whole.combine_chunks().to_batches():
            writer.write(batch)
        at = self.table.transactions.get("shop/clicks/0")
        info = {"pipeline": "shop", "source": "clicks", "ranges": {}}
        return Change(writer.close(), {"shop/clicks/0": (at or 0) + count}, {"shop/clicks/0": at}, info)

    def apply(self, change: Change) -> dict[str, Any]:
        """Commit a batch; what its commit tells."""
        return dict(commit(self.table, change, self._mode, retries=0).entry.commit_info)
