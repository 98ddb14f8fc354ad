"""What a run counts now and then costs no more the older its tables are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import write_deltalake

from lakefeed import Pipeline
from lakefeed.handles.tables import Tables
from lakefeed.tables.log.log import Log
from lakefeed.upkeep.file_counts import count_unapplied

FILE = """\
name: shop
sources:
  db: {type: postgres, connection: "postgresql://shop@localhost:1/shop", tables: [public.orders]}
tables:
  orders: {path: lake/orders, from: db, mode: upsert}
dead_letters: {path: lake/letters}
"""


def test_the_log_of_dead_letters_is_listed_whole_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.yaml").write_text(FILE)
    for _ in range(3):
        write_deltalake(tmp_path / "lake" / "letters", pa.table({"id": [1]}), mode="append")
    tables = Tables(Pipeline.from_file(tmp_path / "shop.yaml"))
    listed: list[pafs.FileSystem] = []
    whole = Log.open
    monkeypatch.setattr(Log, "open", lambda store: (listed.append(store), whole(store))[1])

    assert count_unapplied(tables, lambda event: None, 2) == 2
    assert listed == []
    assert count_unapplied(tables, lambda event: None, 9) != 9
    assert listed
