"""One writer of a table, without a run: it appends numbers, each batch in one commit."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.stores import open_store
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change

SCHEMA = pa.schema([("event_id", pa.int64())])


class Feeder:
    """One writer of a table, with a partition of its own."""

    def __init__(self, path: str, storage: Mapping[str, str], partition: str = "0") -> None:
        self.path, self.storage, self.position = path, dict(storage), f"shop/clicks/{partition}"
        self.store = open_store(path, storage)
        found = LakeTable.open("events", path, storage, self.store)
        self.table = found or LakeTable.create(
            "events",
            path,
            storage,
            self.store,
            schema=SCHEMA,
            partition_by=[],
            properties={},
            transactions={},
            commit_info={"kind": "create"},
        )
        self.next = self.table.transactions.get(self.position, -1) + 1

    def append(self, first: int, count: int = 10) -> int:
        writer = TableWriter(self.store, FileTarget(SCHEMA))
        writer.write(pa.record_batch({"event_id": range(first, first + count)}, schema=SCHEMA))
        expected = {self.position: self.table.transactions.get(self.position)}
        change = Change(writer.close(), {self.position: first + count - 1}, expected, {"kind": "test"})
        return append(self.table, change, retries=3)
