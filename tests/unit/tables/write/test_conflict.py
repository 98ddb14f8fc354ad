"""A store that answers 409 while the very request that it refers to still runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lakefeed.files import WrittenFile
from lakefeed.tables.log.write import write_entry
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write import commit as commits
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.mode import Change, NewEntry
from support.fed_table import make_table


class RewritingMode:
    """Makes a file of its own for each try, as an upsert does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def entry(self, table: LakeTable, change: Change) -> NewEntry:
        self._made += 1
        file = WrittenFile(f"made-{self._made}.parquet", 4, {}, '{"numRecords": 1}', 1)
        (self._folder / file.path).write_bytes(b"PAR1")
        return NewEntry([file], change.transactions, change.commit_info, blind=False, made=[file.path])

    def landed(self, entry: NewEntry) -> None:
        pass


def test_files_of_an_entry_stay_that_lands_after_its_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)
    put, refresh = table.put, table.refresh
    slow: list[list[Mapping[str, Any]]] = []

    def conflict(actions: Iterable[Mapping[str, Any]]) -> FileExistsError | None:
        if slow:
            return put(actions)
        slow.append(list(actions))
        return FileExistsError("409 ConditionalRequestConflict")

    def look(*, grounded: bool = False) -> dict[int, dict[str, Any]]:
        passed = refresh(grounded=grounded)
        if len(slow) == 1:
            # The first request arrives right behind the look.
            write_entry(table.store, table.next_version, slow[0])
            slow.append([])
        return passed

    monkeypatch.setattr(table, "put", conflict)
    monkeypatch.setattr(table, "refresh", look)
    monkeypatch.setattr(commits, "local_folder", lambda store: None)
    change = Change(
        [], {"shop/clicks/0": 19}, {"shop/clicks/0": -1}, {"pipeline": "shop", "source": "clicks"}
    )
    landed = commit(table, change, RewritingMode(tmp_path), retries=3, sleep=lambda seconds: None)

    (named,) = table.delta.file_uris()
    assert landed.version == 1
    assert Path(named).exists()
