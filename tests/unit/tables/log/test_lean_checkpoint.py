"""Checkpoints of tables with deletion vectors: they hold the removals that somebody needs, and no others."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import stored_paths
from lakefeed.tables.log.lean_checkpoint import without_needless_removals
from lakefeed.tables.log.log import Log
from lakefeed.tables.operations import checkpoint, vacuum
from lakefeed.tables.rewrite import compact
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import forget_entries, ids, make_old, open_any
from support.vectors import allow, mark, mark_everywhere

MANY = 1200
"""So many deleted rows that their bitmap has a file of its own."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three files of 3,000 rows, in which rows are marked six times; then the most worn is written anew."""
    path = tmp_path / "table"
    for start in (0, 3000, 6000):
        write_deltalake(path, pa.table({"id": range(start, start + 3000)}), mode="append")
    allow(path)
    for places in (range(5), range(5, 9), range(10, 10 + MANY), range(2000, 2010), range(2010, 2020)):
        mark_everywhere(path, places)
    table = open_any(path)
    worst = data_files(table)[0].path
    mark(path, lambda table: {worst: range(2100, 2200)})
    table.refresh()
    compact.run(table, compact.plan(table, min_size=1, max_deleted=0.6), {"kind": "compact"}, file_writer)
    return path


def removals(path: Path) -> list[tuple[str, str | None]]:
    """The removals of the newest checkpoint: each with its vector, as the log has it."""
    log = Log.open(open_any(path).store)
    assert log is not None
    found = log.checkpoints[log.newest_checkpoint].actions(log.store, "remove")
    return [(one["path"], (one["deletionVector"] or {}).get("pathOrInlineDv")) for _, one in found]


def kept_until(path: Path) -> dict[str, int]:
    """When each file was removed last that the table does not name, by its newest checkpoint."""
    table = open_any(path)
    live = set(stored_paths(data_files(table)))
    log = table.log()
    return {name: at for name, at in log.removed(log.newest_checkpoint).items() if name not in live}


def checkpointed(path: Path, how: str) -> None:
    """Write a checkpoint of a new version, by delta-rs or as a run does it."""
    mark(path, lambda table: {data_files(table)[0].path: [2900 + table.version]})
    if how == "delta-rs":
        DeltaTable(path).create_checkpoint()
    else:
        checkpoint.checkpoint_now(open_any(path))


def test_removals_of_files_that_are_still_there_are_left_out(path: Path) -> None:
    checkpointed(path, "delta-rs")
    all_of_them = removals(path)
    checkpointed(path, "ours")
    left = removals(path)

    live = {file.path for file in data_files(open_any(path))}
    vectors = [vector for name, vector in left if name in live]
    assert len(all_of_them) > 15
    assert len(left) < 9
    assert len(vectors) == len(set(vectors))


def test_vacuum_keeps_each_file_as_long_as_with_all_removals(path: Path) -> None:
    checkpointed(path, "delta-rs")
    before = kept_until(path)
    checkpointed(path, "ours")
    after = kept_until(path)

    assert before.items() <= after.items()
    assert any(name.endswith(".bin") for name in before)
    assert any(name.endswith(".parquet") for name in before)


def test_vacuum_deletes_nothing_that_is_younger_than_its_retention(path: Path) -> None:
    checkpointed(path, "ours")
    forget_entries(path)
    make_old(path, days=30)

    found = vacuum.plan(open_any(path))

    assert found.files == ()


def test_readers_find_the_same_rows_behind_it(path: Path) -> None:
    checkpointed(path, "ours")
    expected = ids(path)
    table = open_any(path)

    forget_entries(path)

    assert ids(path) == expected
    assert sorted(pl.read_delta(str(path))["id"]) == expected
    fresh = open_any(path)
    assert (fresh.version, fresh.transactions) == (table.version, table.transactions)
    assert fresh.shape == table.shape


def test_readers_are_pointed_to_it_with_its_own_size(path: Path) -> None:
    checkpointed(path, "ours")

    (file,) = (path / "_delta_log").glob("*.checkpoint.parquet")
    hint = orjson.loads((path / "_delta_log" / "_last_checkpoint").read_bytes())
    version = open_any(path).version
    assert (hint["version"], hint["sizeInBytes"]) == (version, file.stat().st_size)
    assert file.name == f"{version:020d}.checkpoint.parquet"


def test_the_next_one_is_made_of_it(path: Path, tmp_path: Path) -> None:
    checkpointed(path, "ours")
    first = removals(path)

    for place in range(2200, 2300, 10):
        mark_everywhere(path, [place])
    checkpointed(path, "ours")

    assert len(removals(path)) <= len(first) + 12
    replayed = shutil.copytree(path, tmp_path / "replayed")
    for file in [*(replayed / "_delta_log").glob("*checkpoint*")]:
        file.unlink()
    assert ids(path) == ids(replayed)


def actions(path: Path) -> list[dict[str, Any]]:
    """What the newest checkpoint of a table says, whatever the order."""
    newest = max((path / "_delta_log").glob("*.checkpoint.parquet"))
    lean = without_needless_removals(pq.read_table(newest)).to_pylist()
    for one in (one["protocol"] for one in lean if one["protocol"]):
        one |= {name: sorted(one[name]) for name in ("readerFeatures", "writerFeatures")}
    return sorted(lean, key=repr)


@pytest.mark.parametrize("seed", range(4))
def test_it_says_what_one_of_the_whole_log_says_whatever_happens_in_between(
    seed: int, tmp_path: Path
) -> None:
    chance, path = random.Random(seed), tmp_path / "table"
    days = ["mon", "tue day", "50% off", "a/b"]
    parsed = {"delta.checkpoint.writeStatsAsStruct": "true"} if seed % 2 else {}

    def append() -> None:
        columns = {"id": list(range(50)), "day": [chance.choice(days) for _ in range(50)]}
        write_deltalake(
            path,
            pa.table(columns),
            mode="append",
            schema_mode="merge",
            partition_by=["day"],
            configuration=parsed,
        )

    append()
    allow(path)
    for _ in range(12):
        for _ in range(chance.randrange(1, 4)):
            match chance.randrange(5):
                case 0 | 1:
                    append()
                case 2:
                    files = {file.path: [chance.randrange(3)] for file in data_files(open_any(path))}
                    some = dict(chance.sample(sorted(files.items()), min(2, len(files))))
                    mark(path, lambda table, some=some: some)
                case 3:
                    table = open_any(path)
                    info = {"kind": "compact"}
                    compact.run(table, compact.plan(table, min_size=1, max_deleted=0.01), info, file_writer)
                case 4 if chance.random() < 0.2:
                    DeltaTable(path).alter.add_columns(Field(f"c{DeltaTable(path).version()}", "long"))
        table = open_any(path)
        checkpoint.run(table, checkpoint.plan(table))
        whole = shutil.copytree(path, tmp_path / f"whole{DeltaTable(path).version()}", dirs_exist_ok=True)
        for file in (whole / "_delta_log").glob("*checkpoint*"):
            file.unlink()
        DeltaTable(whole).create_checkpoint()

        ours, theirs = actions(path), actions(whole)
        assert [one for one in ours if one not in theirs] == [one for one in theirs if one not in ours] == []
        assert len(ours) == len(theirs)
        hint = orjson.loads((path / "_delta_log" / "_last_checkpoint").read_bytes())
        assert hint["numOfAddFiles"] == len(data_files(open_any(path)))


def test_a_checkpoint_that_somebody_else_has_made_stays(path: Path) -> None:
    checkpointed(path, "delta-rs")
    (file,) = (path / "_delta_log").glob("*.checkpoint.parquet")
    before = file.read_bytes()

    checkpoint.checkpoint_now(open_any(path))

    assert file.read_bytes() == before


@pytest.mark.parametrize("pointed", [True, False])
@pytest.mark.parametrize("by", ["ours", "delta-rs"])
def test_a_version_that_has_one_already_gets_no_second(path: Path, by: str, pointed: bool) -> None:
    checkpointed(path, by)
    (file,) = (path / "_delta_log").glob("*.checkpoint.parquet")
    before, table = file.read_bytes(), open_any(path)
    if not pointed:
        (path / "_delta_log" / "_last_checkpoint").unlink()

    assert checkpoint.run(table, checkpoint.plan(table)) == table.version

    assert file.read_bytes() == before


def test_delta_writes_it_where_nothing_keeps_two_writers_apart(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "is_conditional", lambda store: False)

    checkpointed(path, "ours")

    assert len(removals(path)) > 15


def test_the_command_writes_the_same(path: Path) -> None:
    table = open_any(path)

    assert checkpoint.run(table, checkpoint.plan(table)) == table.version

    assert len(removals(path)) < 9


def action(path: str, at: int = 0, vector: str | None = None, kind: str = "u") -> dict[str, Any]:
    named = {"storageType": kind, "pathOrInlineDv": vector} if vector else None
    return {"path": path, "deletionTimestamp": at, "deletionVector": named}


SCHEMA = pa.struct(
    {
        "path": pa.string(),
        "deletionTimestamp": pa.int64(),
        "deletionVector": pa.struct({"storageType": pa.string(), "pathOrInlineDv": pa.string()}),
    }
)


def left(adds: list[dict[str, Any]], removes: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """The removals that stay, of a checkpoint with these."""
    lines = [{"add": one, "remove": None} for one in adds] + [{"add": None, "remove": one} for one in removes]
    random.Random(7).shuffle(lines)
    table = pa.Table.from_pylist(lines, pa.schema({"add": SCHEMA, "remove": SCHEMA}))
    lean = without_needless_removals(table)
    assert [one for one in lean["add"].to_pylist() if one] == [one["add"] for one in lines if one["add"]]
    return sorted((one["path"], one["deletionTimestamp"]) for one in lean["remove"].to_pylist() if one)


def test_a_file_that_is_gone_keeps_its_last_removal() -> None:
    assert left([], [action("a", 1), action("a", 3), action("b", 2)]) == [("a", 3), ("b", 2)]


def test_a_file_that_is_back_needs_none() -> None:
    assert left([action("a", vector="v2")], [action("a", 1), action("a", 2, "inline", "i")]) == []


def test_a_file_of_vectors_keeps_the_last_removal_that_names_it_whosever_it_is() -> None:
    live = [action("a", vector="v3"), action("b", vector="v3")]

    assert left(live, [action("a", 1, "v1"), action("b", 2, "v1"), action("a", 3, "v2")]) == [
        ("a", 3),
        ("b", 2),
    ]


def test_vectors_that_are_in_use_need_no_removal() -> None:
    assert left([action("a", vector="v2"), action("b", vector="v1")], [action("a", 1, "v1")]) == []


def test_no_file_is_kept_for_a_shorter_time_in_any_log() -> None:
    vectors = [None, "v1", "v2", "v3", "v4"]
    for seed in range(300):
        chance = random.Random(seed)
        adds = [action(f"f{n}", vector=chance.choice([None, "v1", "v2"])) for n in range(chance.randrange(4))]
        removes = [
            action(f"f{chance.randrange(8)}", chance.randrange(9), chance.choice(vectors))
            for _ in range(chance.randrange(30))
        ]

        kept = {(name, at) for name, at in left(adds, removes)}

        live = {one["path"] for one in adds}
        for name in {one["path"] for one in removes} - live:
            assert (name, max(one["deletionTimestamp"] for one in removes if one["path"] == name)) in kept
        used = {(one["deletionVector"] or {}).get("pathOrInlineDv") for one in adds}
        for vector in set(vectors) - used:
            of_it = [one for one in removes if (one["deletionVector"] or {}).get("pathOrInlineDv") == vector]
            last = max((one["deletionTimestamp"] for one in of_it), default=None)
            assert not vector or last is None or last in {at for _, at in kept}
