"""A process that dies while it applies changes: the next one goes on, and every change counts once."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakefeed.tables import table as tables
from lakefeed.tables.operations import vacuum
from lakefeed.tables.verify.changes import repeated_keys
from lakefeed.tables.verify.intervals import interval_problems
from lakefeed.tables.write import commit, upsert
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules, merge_on_read
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.keyed.merge_on_read import MergeOnRead
from lakefeed.tables.write.keyed.tombstones import TombstoneWriter
from lakefeed.tables.write.upsert import UpsertMode
from support.delta_tables import open_any
from support.forks import call, ended, start
from support.history_model import HistoryModel
from support.keyed_table import KeyedTable
from support.upsert_model import UpsertModel
from support.vectors import allow

BODY = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string())])
SPAN = [pa.field("valid_from", pa.int64()), pa.field("valid_to", pa.int64())]
RULES: dict[str, KeyRules] = {
    "upsert": KeyRules(("id",), ("seq",)),
    "history": HistoryRules(("id",), ("seq",)),
}
BATCHES = 9
RANGE_BYTES = 2000
"""So small that each batch is decided in several ranges of its keys."""
POSITION = "shop/clicks/0"


def batch(number: int) -> list[dict[str, Any]]:
    chance = random.Random(number)
    return [
        {
            "op": chance.choices(["upsert", "delete"], [8, 2])[0],
            "id": chance.randrange(300),
            "seq": chance.randrange(100),
            "v": chance.choice("abc"),
        }
        for _ in range(150)
    ]


def keyed(folder: Path, kind: str, layout: str, *, new: bool) -> KeyedTable:
    schema = pa.schema([*BODY, *(SPAN if kind == "history" else [])])
    made = KeyedTable if new else Reopened
    return made(
        folder,
        schema,
        RULES[kind],
        layout=MergeOnRead() if layout.startswith("merge_on_read") else CopyOnWrite(),
        modes=HistoryMode if kind == "history" else UpsertMode,
        max_rows=60,
        range_bytes=RANGE_BYTES if layout.endswith("in ranges") else None,
    )


class Reopened(KeyedTable):
    """A table that is there already."""

    def __init__(self, folder: Path, schema: pa.Schema, rules: KeyRules, **more: Any) -> None:
        self.path, self.rules, self._max_rows = str(folder), rules, more["max_rows"]
        self._layout, self._mode, self._modes = more["layout"], None, more["modes"]
        self.offsets, self.storage, self._range_bytes = {}, {}, more["range_bytes"]
        self.restart()


def go_on(folder: Path, kind: str, layout: str) -> None:
    """Apply what the table has not got yet."""
    table = keyed(folder, kind, layout, new=False)
    for number in range(table.table.transactions.get(POSITION, -1) + 1, BATCHES):
        expected = {POSITION: number - 1 if number else None}
        change = replace(table.change(batch(number)), transactions={POSITION: number}, expected=expected)
        commit.commit(table.table, change, table.mode, retries=0)


def _dying(function: Callable[..., Any], left: list[int], *, after: bool) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if not after and left[0] == 0:
            os._exit(9)
        found = function(*arguments, **named)
        if left[0] == 0:
            os._exit(9)
        left[0] -= 1
        return found

    return call


POINTS: dict[str, tuple[Any, str, bool]] = {
    "rows are written": (upsert.UpsertMode, "_write_rows", True),
    "vectors are written": (merge_on_read, "write_vectors", True),
    "tombstones are written": (TombstoneWriter, "close", True),
    "before the entry": (tables, "write_entry", False),
    "behind the entry": (tables, "write_entry", True),
    "staged changes are deleted": (commit, "drop_files", True),
}


def go_on_until(folder: Path, kind: str, layout: str, point: str, count: int) -> None:
    """In a process of its own: go on, and die when a point was passed so many times."""
    owner, name, after = POINTS[point]
    setattr(owner, name, _dying(getattr(owner, name), [count], after=after))
    go_on(folder, kind, layout)


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        ("upsert", "merge_on_read"),
        ("upsert", "merge_on_read in ranges"),
        ("upsert", "copy_on_write in ranges"),
        ("history", "merge_on_read"),
        ("history", "copy_on_write"),
    ],
)
def test_changes_count_once_wherever_the_process_dies(kind: str, layout: str, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    keyed(folder, kind, layout, new=True)
    if layout.startswith("merge_on_read"):
        allow(folder)
    chance = random.Random(f"{kind} {layout}")
    points = [point for point in POINTS if layout.startswith("merge_on_read") or "vectors" not in point]
    if kind == "history":
        # Most of it is the same for both modes.
        points = chance.sample(points, 3)

    for point in points:
        arguments = (folder, kind, layout, point, chance.randrange(2))
        assert ended(start(call, "faults.test_kill_changes:go_on_until", *arguments)) in (0, 9)
    go_on(folder, kind, layout)

    table = keyed(folder, kind, layout, new=False)
    wanted = expected(kind)
    assert in_order(table.rows()) == wanted
    lake = open_any(folder)
    files = list(lake.live().files.values())
    if kind == "history":
        assert list(interval_problems(lake, files, RULES[kind])) == []  # type: ignore[arg-type]
    else:
        assert repeated_keys(lake, files, ["id"]) == (0, "")
    vacuum.run(lake, vacuum.plan(lake, retain=0.0, allow_short=True), {"kind": "vacuum"})
    assert in_order(keyed(folder, kind, layout, new=False).rows()) == wanted


def expected(kind: str) -> list[dict[str, Any]]:
    model: Any = (
        HistoryModel(["id"], BODY.names, ["v"])
        if kind == "history"
        else UpsertModel(["id"], "seq", BODY.names)
    )
    for number in range(BATCHES):
        model.apply(batch(number))
    return in_order(model.content())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["id"], row.get("valid_from")))
