from __future__ import annotations

import json
from collections.abc import Hashable
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from lakefeed.errors import Fenced, StoreUnavailable
from lakefeed.files import WrittenFile
from lakefeed.stores import read_tagged
from lakefeed.tables import table as tables
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from support.fed_table import make_table


def rows(path: Path, first: int, last: int) -> Change:
    (path / f"{first}.parquet").write_bytes(b"x" * 100)
    file = WrittenFile(
        f"{first}.parquet", 100, {}, json.dumps({"numRecords": last - first + 1}), last - first + 1
    )
    return Change([file], {"shop/clicks/0": last}, {"shop/clicks/0": first - 1}, {})


def test_position_is_known_although_the_log_could_not_be_read_right_after_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)

    def away(store: pafs.FileSystem, path: str) -> tuple[bytes, Hashable | None]:
        raise OSError("connection reset by peer")

    monkeypatch.setattr(tables, "read_tagged", away)
    with pytest.raises(StoreUnavailable, match="connection reset by peer"):
        append(table, rows(tmp_path, 0, 9), retries=0)
    monkeypatch.setattr(tables, "read_tagged", read_tagged)
    passed = table.refresh()

    assert list(passed) == [1]
    assert table.transactions == {"shop/clicks/0": 9}
    with pytest.raises(Fenced):
        append(table, rows(tmp_path, 0, 9), retries=0)
    assert table.version == 1


def test_log_that_could_not_be_read_anew_is_still_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)
    before = table._footprint

    def away() -> None:
        raise OSError("connection reset by peer")

    with monkeypatch.context() as patched:
        patched.setattr(tables, "local_folder", lambda store: None)
        patched.setattr(tables, "footprint", lambda store, version: None)
        patched.setattr(table, "_reopen", away)
        with pytest.raises(StoreUnavailable, match="connection reset by peer"):
            table.confirm()

    assert before is not None
    assert table._footprint == before
