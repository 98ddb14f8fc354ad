"""A large batch is decided in ranges of its keys: the table is the same, and no more is in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed.errors import StoreUnavailable, UnknownValues
from lakefeed.tables.write.deduplicate import DedupeRules, DeduplicateMode
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.keyed.layout import Layout
from lakefeed.tables.write.keyed.merge_on_read import MergeOnRead
from lakefeed.tables.write.keyed.ranges import SpilledRows
from lakefeed.tables.write.upsert import UpsertMode
from support.keyed_table import KeyedTable
from support.vectors import allow

LAYOUTS: dict[str, Callable[[], Layout]] = {"copy_on_write": CopyOnWrite, "merge_on_read": MergeOnRead}
COLUMNS = [("id", pa.int64()), ("seq", pa.int64()), ("name", pa.string())]
FEED = {"delta.enableChangeDataFeed": "true"}
Row = dict[str, Any]


def keyed(folder: Path, mode: str, layout: str, range_bytes: int | None, *, feed: bool = True) -> KeyedTable:
    """A table whose batches of more than so many bytes are decided in ranges."""
    more = [("valid_from", pa.int64()), ("valid_to", pa.int64())] if mode == "history" else []
    rules = HistoryRules if mode == "history" else KeyRules
    table = KeyedTable(
        folder,
        pa.schema([*COLUMNS, *more]),
        rules(("id",), ("seq",)),
        modes=HistoryMode if mode == "history" else UpsertMode,
        layout=LAYOUTS[layout](),
        max_rows=40,
        properties=FEED if feed else {},
        range_bytes=range_bytes,
    )
    if layout == "merge_on_read":
        allow(folder)
        table.restart()
    return table


def net(path: str, version: int) -> list[Row]:
    """Which rows the change feed of a version takes away and brings, those that come again left out."""
    found = pa.table(DeltaTable(path).load_cdf(version, version).read_all()).to_pylist()
    rows: dict[str, int] = {}
    for row in found:
        sign = 1 if row["_change_type"] in ("insert", "update_postimage") else -1
        own = repr([value for name, value in row.items() if not name.startswith("_")])
        rows[own] = rows.get(own, 0) + sign
    return sorted(repr(one) for one in rows.items() if one[1])


def content(table: KeyedTable) -> list[str]:
    return sorted(map(repr, table.rows()))


def upserts(keys: range, seq: int) -> list[Row]:
    return [{"id": key, "seq": seq, "name": f"{key} at {seq}"} for key in keys]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", ["upsert", "history"])
def test_a_batch_in_ranges_makes_the_table_that_it_makes_as_a_whole(
    mode: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[str] = []
    made = tempfile.mkdtemp
    monkeypatch.setattr("tempfile.mkdtemp", lambda *args: folders.append(made(*args)) or folders[-1])
    batches: list[list[Row]] = [
        upserts(range(0, 200, 2), 1),
        [*upserts(range(100), 3), *upserts(range(0, 300, 3), 2), *upserts(range(150, 160), 0)],
        [*({"op": "delete", "id": key, "seq": 4} for key in range(50, 250)), *upserts(range(60, 90), 5)],
        [{"op": "truncate", "seq": 6}, *upserts(range(80), 5), *upserts(range(40, 120), 7)],
        [*upserts(range(30), 4), *upserts(range(200), 8), {"op": "truncate", "seq": 3}],
    ]
    whole = keyed(tmp_path / "whole", mode, layout, None)
    ranged = keyed(tmp_path / "ranged", mode, layout, 6_000)

    for batch in batches:
        entries = [table.apply(*batch).commit_info for table in (whole, ranged)]

        assert content(ranged) == content(whole)
        assert net(ranged.path, ranged.table.version) == net(whole.path, whole.table.version)
        assert entries[1]["changes"] == sum(entries[1][name] for name in ("applied", "stale", "folded"))
        assert entries[1]["changes"] == len(batch)
        assert entries[1]["deleted"] == entries[0]["deleted"]
    # What comes, and what is decided, is on the disk of the driver.
    assert len(folders) == 2 * len(batches)
    late = [table.apply(*upserts(range(300), 3)).commit_info["applied"] for table in (whole, ranged)]
    assert late[0] == late[1]
    assert content(ranged) == content(whole)


def test_deduplication_in_ranges_keeps_the_first_of_each_key(tmp_path: Path) -> None:
    table = keyed(tmp_path, "upsert", "copy_on_write", None, feed=False)
    table.mode = DeduplicateMode(DedupeRules(("id",)), table.target)
    table.mode.range_bytes = 2_000

    first = table.apply(*upserts(range(0, 200, 2), 1), *upserts(range(100), 2))
    second = table.apply(*upserts(range(250), 3))

    assert len(first.added) > 1
    assert [one.commit_info["duplicates"] for one in (first, second)] == [50, 150]
    sequences = {row["id"]: row["seq"] for row in table.rows()}
    assert sequences == {
        key: 1 if key % 2 == 0 and key < 200 else 2 if key < 100 else 3 for key in range(250)
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_in_ranges_that_is_not_committed_leaves_nothing_behind(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spill))
    table = keyed(tmp_path / "rows", "upsert", layout, 2_000)
    table.apply(*upserts(range(100), 1))
    before = {path for path in (tmp_path / "rows").rglob("*") if path.is_file()}
    changes = [*upserts(range(100), 2), {"op": "delete", "id": 3, "seq": 3}]
    changes.append({"id": 999, "seq": 2, "unchanged": ["name"]})

    with pytest.raises(UnknownValues):
        table.apply(*changes)

    after = {path for path in (tmp_path / "rows").rglob("*") if path.is_file()}
    assert {path.parent.name for path in after - before} <= {"staged"}
    assert list(spill.iterdir()) == []


def test_a_full_disk_of_the_driver_is_reported_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "0.arrow").symlink_to("/dev/full")
    schema = pa.schema(COLUMNS)
    spill = SpilledRows(tmp_path, schema)

    with pytest.raises(StoreUnavailable, match=r"no space left\nFree some space; the write is tried again"):
        spill.add(0, pa.Table.from_pylist(upserts(range(100_000), 1), schema))
