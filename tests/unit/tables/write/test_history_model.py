"""Random changes give the history that a small model gives, which knows every change there ever was.

`LAKEFEED_MODEL_RUNS` asks for more runs than the suite has time for.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakefeed.tables.operations import vacuum
from lakefeed.tables.operations.checkpoint import checkpoint_now
from lakefeed.tables.rewrite import compact
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import open_any
from support.history_model import HistoryModel
from support.keyed_table import KeyedTable
from support.vectors import allow
from unit.tables.write.test_history import LAYOUTS
from unit.tables.write.test_upsert_model import restored

RUNS = int(os.environ.get("LAKEFEED_MODEL_RUNS", "12"))
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("site", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("share", pa.float64()),
        pa.field("note", pa.string()),
        pa.field("valid_from", pa.int64()),
        pa.field("valid_to", pa.int64()),
    ]
)
INFO = {"kind": "test", "by": "test"}


TIME = pa.timestamp("us", "UTC")
TIMED = pa.schema([*SCHEMA, *(pa.field(name, TIME) for name in ("at", "valid_from_time", "valid_to_time"))])


def with_time(change: dict[str, Any]) -> dict[str, Any]:
    """A change with its time, which grows with its sequence, and is not the same for all keys."""
    moment = dt.datetime(2026, 11, 17, tzinfo=dt.UTC) + dt.timedelta(minutes=change["seq"] // 2)
    return change | {"at": moment + dt.timedelta(seconds=change.get("id", 0))}


def random_change(chance: random.Random, number: int, truncates: bool) -> dict[str, Any]:
    kind = chance.choices(["upsert", "delete", "truncate"], [7, 2, 0.1 if truncates else 0])[0]
    change: dict[str, Any] = {"op": kind, "seq": chance.randrange(40)}
    if kind == "truncate":
        return change
    change |= {"id": chance.randrange(6), "site": chance.choice(["de", "fr"])}
    change["from"] = str(change["id"] % 3)
    if kind == "upsert":
        change |= {
            "name": chance.choice(["a", "b", None]),
            "tags": chance.choice([None, ["x"]]),
            "share": chance.choice([None, 0.5, 0.25]),
            "note": f"n{number}",
        }
    return change


def disturb(chance: random.Random, table: KeyedTable) -> None:
    """What others, or upkeep, do to the table between two batches."""
    other = open_any(table.path)
    match chance.randrange(8):
        case 0:
            compact.run(other, compact.plan(other), INFO, file_writer)
        case 1:
            vacuum.run(other, vacuum.plan(other, retain=0.0, allow_short=True), INFO)
        case 2:
            checkpoint_now(open_any(table.path))
        case 3:
            # A new process knows only what is in the table.
            table.restart()


def play(folder: Path, seed: int, layout: str) -> KeyedTable:
    """Let the changes of a seed happen to a table and to the model, which agree after each batch."""
    chance = random.Random(seed)
    except_ = chance.choice([(), ("note",), ("note", "share")])
    keys, ties = chance.choice([("id",), ("site", "id")]), seed % 2 == 1
    timed = seed % 3 == 1
    schema = TIMED if timed else SCHEMA
    time_by = "at" if timed else None
    rules = HistoryRules(keys, ("seq",), track_except=except_, ties_by_position=ties, time_by=time_by)
    table = KeyedTable(
        folder,
        schema,
        rules,
        modes=HistoryMode,
        layout=LAYOUTS[layout](),
        partition_by=chance.choice([[], ["site"], ["name"]]) if len(rules.keys) > 1 else [],
        max_rows=chance.choice([None, 5]),
        # A batch of so many bytes is decided in ranges of its keys.
        range_bytes=[None, 600, 3000][seed % 5 % 3],
    )
    if layout == "merge_on_read":
        allow(folder)
        table.restart()
    body = rules.body(schema)
    model = HistoryModel(rules.keys, body.names, rules.tracked(body), ties=ties)
    truncates = chance.random() < 0.3
    other = table.beside("other")
    # Both read one stream, in turn.
    other.offsets = table.offsets
    versions: list[tuple[int, HistoryModel]] = []
    changes = [random_change(chance, number, truncates) for number in range(chance.randrange(5, 120))]
    changes = [with_time(change) for change in changes] if timed else changes
    while changes:
        size = chance.choice([1, 3, 10, 40])
        batch, changes = changes[:size], changes[size:]
        # Of one time, the later position wins: partitions are read one after the other.
        batch.sort(key=lambda change: change.get("from", "0"))
        writer = chance.choice([table, table, other])
        # A vacuum without retention leaves nothing to a writer that is at an older version.
        writer.table.refresh()
        told = writer.apply(*batch).commit_info
        model.apply(batch)
        assert told["changes"] == len(batch) == told["applied"] + told["stale"] + told["folded"]
        assert content(table, rules) == model.content(), f"seed {seed}"
        if chance.random() < 0.2:
            table.table.refresh()
            again = table.apply(*batch)
            model.apply(batch)
            assert not again.added or content(table, rules) == model.content()
            assert content(table, rules) == model.content(), f"seed {seed}, again"
        versions.append((writer.table.version, deepcopy(model)))
        disturb(chance, chance.choice([table, other]))
        if (then := restored(chance, table, versions)) is not None:
            model = then
            assert content(table, rules) == model.content(), f"seed {seed}, restored"
    return table


def content(table: KeyedTable, rules: HistoryRules) -> list[dict[str, Any]]:
    def place(row: dict[str, Any]) -> tuple[str, int]:
        return repr(tuple(row[name] for name in rules.keys)), row["valid_from"]

    return sorted(table.rows(), key=place)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_changes_give_the_history_of_the_model(layout: str, tmp_path: Path) -> None:
    first = int(os.environ.get("LAKEFEED_MODEL_SEED", "0"))
    for seed in range(first, first + RUNS):
        play(tmp_path / str(seed), seed, layout)
