"""Random changes give the table that a small model gives, whatever order and batches they come in.

`LAKEFEED_MODEL_RUNS` asks for more runs than the suite has time for.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed.errors import TableError
from lakefeed.tables.operations import restore, vacuum
from lakefeed.tables.operations.checkpoint import checkpoint_now
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.keyed.layout import Layout
from lakefeed.tables.write.keyed.merge_on_read import MergeOnRead
from support.delta_tables import open_any
from support.keyed_table import KeyedTable
from support.upsert_model import UpsertModel
from support.vectors import allow

M = TypeVar("M")
RUNS = int(os.environ.get("LAKEFEED_MODEL_RUNS", "12"))
LAYOUTS: dict[str, Callable[[], Layout]] = {"copy_on_write": CopyOnWrite, "merge_on_read": MergeOnRead}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("site", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([("town", pa.string()), ("zip", pa.int32())])),
        pa.field("day", pa.string()),
    ]
)


def random_change(chance: random.Random, number: int, *, partial: bool, truncates: bool) -> dict[str, Any]:
    kinds = {"upsert": 8, "delete": 1.5, "tombstone": 0.5, "truncate": 0.05 if truncates else 0}
    kind = chance.choices(list(kinds), list(kinds.values()))[0]
    change: dict[str, Any] = {"op": kind, "seq": None if kind == "tombstone" else chance.randrange(60)}
    if kind == "truncate":
        return change
    # A key stays in one partition.
    change |= {"id": chance.randrange(25), "site": chance.choice(["de", "fr"])}
    change["from"] = str(change["id"] % 3)
    if kind == "upsert":
        change |= {
            "name": f"n{number}",
            "tags": chance.choice([None, [], ["a", f"t{number}"]]),
            "place": chance.choice([None, {"town": f"x{number}", "zip": number}]),
            "day": chance.choice(["mon", "tue", None]),
        }
        silent = [name for name in ("name", "tags", "place") if partial and chance.random() < 0.3]
        change["unchanged"] = silent or None
    return change


def disturb(chance: random.Random, table: KeyedTable) -> None:
    """What others do to the table between two batches."""
    match chance.randrange(8):
        case 0:
            DeltaTable(table.path).optimize.compact()
        case 1:
            other = open_any(table.path)
            vacuum.run(other, vacuum.plan(other, retain=0.0, allow_short=True), {"kind": "vacuum"})
        case 2:
            checkpoint_now(open_any(table.path))
        case 3:
            # A new process knows only what is in the table.
            table.restart()


def play(folder: Path, seed: int, layout: str) -> KeyedTable:
    """Let the changes of a seed happen to a table and to the model, which agree after each batch."""
    chance = random.Random(seed)
    sequence = chance.choice(["seq", "seq", None])
    keys = chance.choice([("id",), ("id", "site"), ("site", "id")])
    ties = sequence is not None and seed % 2 == 1
    rules = KeyRules(keys, ("seq",) if sequence else (), ties_by_position=ties)
    table = KeyedTable(
        folder,
        SCHEMA,
        rules,
        partition_by=chance.choice([[], ["day"], ["site"]]) if "site" in rules.keys else [],
        layout=LAYOUTS[layout](),
        max_rows=chance.choice([None, 5]),
        # A batch of so many bytes is decided in ranges of its keys.
        range_bytes=[None, 600, 3000][seed % 5 % 3],
    )
    if layout == "merge_on_read":
        allow(folder)
        table.restart()
    other = table.beside("other")
    # Both read one stream, in turn.
    other.offsets = table.offsets
    versions: list[tuple[int, UpsertModel]] = []
    model = UpsertModel(rules.keys, sequence, SCHEMA.names, ties=ties)
    partial, truncates = chance.random() < 0.4, chance.random() < 0.3
    changes = [
        random_change(chance, number, partial=partial, truncates=truncates)
        for number in range(chance.randrange(5, 150))
    ]
    changes += chance.choices(changes, k=len(changes) // 5)
    while changes:
        size = chance.choice([1, 3, 10, 40])
        batch, changes = changes[:size], changes[size:]
        # Of one time, the later position wins: partitions are read one after the other.
        batch.sort(key=lambda change: change.get("from", "0"))
        writer = chance.choice([table, table, other])
        # A vacuum without retention leaves nothing to a writer that is at an older version.
        writer.table.refresh()
        entry, batch = writer.apply_known(*batch)
        model.apply(batch)
        told = entry.commit_info if batch else {"changes": 0, "applied": 0, "stale": 0, "folded": 0}
        assert told["changes"] == len(batch) == told["applied"] + told["stale"] + told["folded"]
        assert table.rows() == model.content(), f"seed {seed}"
        versions.append((writer.table.version, deepcopy(model)))
        disturb(chance, chance.choice([table, other]))
        if (then := restored(chance, table, versions)) is not None:
            model = then
            assert table.rows() == model.content(), f"seed {seed}, restored"
    return table


def restored(chance: random.Random, table: KeyedTable, versions: list[tuple[int, M]]) -> M | None:
    """Sometimes bring a table back to a version; what the model was then, if the version is still whole."""
    if chance.random() > 0.1:
        return None
    version, model = chance.choice(versions[-4:])
    lake = table.open()
    if version == lake.version:
        return None
    try:
        plan = restore.plan(lake, version)
    except TableError as error:
        # A vacuum has been here.
        assert "gone" in str(error)
        return None
    restore.run(lake, plan, {"kind": "restore", "by": "test"})
    return deepcopy(model)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_changes_give_the_table_of_the_model(layout: str, tmp_path: Path) -> None:
    first = int(os.environ.get("LAKEFEED_MODEL_SEED", "0"))
    for seed in range(first, first + RUNS):
        play(tmp_path / str(seed), seed, layout)
