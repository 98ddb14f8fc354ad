"""A change data feed as a source: every change once, as `table changes` has it, into tables of each mode."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline, PipelineFileError, SourceError
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.cores import Cores
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.events import OffsetRange, Split
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from lakefeed.sources import Allowance
from lakefeed.sources.delta.client import DeltaClient
from lakefeed.sources.delta.source import DeltaSource
from lakefeed.tables.operations.changes import changes
from support.delta_tables import open_any
from support.ledger import dead_letters
from support.vectors import allow, mark_everywhere

CAME = ("insert", "update_postimage")
FEED = {"delta.enableChangeDataFeed": "true"}


def write(folder: Path, tables: str, options: str = "", more: str = "") -> Pipeline:
    file = folder / "follow.yaml"
    file.write_text(
        f"""\
name: follow
sources: {{orders: {{type: delta, path: orders, change_feed: true{options}}}}}
tables:
{tables}
{more}
"""
    )
    return Pipeline.from_file(file)


AUDIT = "  audit: {path: audit, from: orders}"
MIRROR = "  mirror: {path: mirror, from: orders, mode: upsert, keys: id}"
HISTORY = "  past: {path: past, from: orders, mode: history, keys: id}"


def read(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    rows = DeltaTable(path).to_pyarrow_table(columns=list(columns) or None).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def merge(table: Path, rows: Mapping[str, list[Any]], deletes: str | None = None) -> None:
    """What MERGE of delta-rs does, which writes files of the feed."""
    merging = DeltaTable(table).merge(pa.table(dict(rows)), "target.id = source.id", "source", "target")
    if deletes:
        merging = merging.when_matched_delete(deletes)
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Six versions: created with three rows, appended, updated, deleted, merged, and a key that changes."""
    path = tmp_path / "orders"
    write_deltalake(path, pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), configuration=FEED)
    write_deltalake(path, pa.table({"id": [4], "name": ["d"]}), mode="append")
    DeltaTable(path).update({"name": "'B'"}, predicate="id = 2")
    DeltaTable(path).delete("id = 3")
    merge(path, {"id": [1, 5], "name": ["A", "e"]})
    DeltaTable(path).update({"id": "40"}, predicate="id = 4")
    return path


def told(path: Path, first: int = 0) -> list[tuple[Any, ...]]:
    """The changes as `table changes` has them."""
    found = [row for batch in changes(open_any(path), first).batches for row in batch.to_pylist()]
    return sorted((tuple(row.values()) for row in found), key=repr)


def test_an_append_table_is_an_audit_trail_that_equals_table_changes(orders: Path, tmp_path: Path) -> None:
    run_inline(write(tmp_path, AUDIT, ", start: {version: 0}"))
    DeltaTable(orders).delete("id = 5")
    run_inline(write(tmp_path, AUDIT, ", start: {version: 0}"))

    rows = read(tmp_path / "audit")
    assert rows == told(orders)
    kinds = [(row[0], row[2], row[3]) for row in rows]
    assert (2, "update_preimage", 2) in kinds and (2, "update_postimage", 2) in kinds
    assert (3, "delete", 3) in kinds and (5, "delete", 6) in kinds and (1, "insert", 0) in kinds
    assert verify(write(tmp_path, AUDIT)).sound


def test_the_first_rows_are_inserts_of_the_newest_version(orders: Path, tmp_path: Path) -> None:
    run_inline(write(tmp_path, AUDIT))
    DeltaTable(orders).delete("id = 5")
    run_inline(write(tmp_path, AUDIT))

    assert read(tmp_path / "audit", "id", "_change_type", "_commit_version") == [
        (1, "insert", 5), (2, "insert", 5), (40, "insert", 5), (5, "delete", 6), (5, "insert", 5),
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [1, 1000])
def test_an_upsert_table_mirrors_the_table_whatever_the_batches(
    orders: Path, tmp_path: Path, rows: int
) -> None:
    flush = f"flush: {{rows: {rows}}}"
    run_inline(write(tmp_path, MIRROR, ", start: {version: 0}", flush))

    expected = [(1, "A"), (2, "B"), (40, "d"), (5, "e")]
    assert read(tmp_path / "mirror", "id", "name") == expected == read(orders)
    assert verify(write(tmp_path, MIRROR)).sound

    DeltaTable(orders).delete()
    write_deltalake(orders, pa.table({"id": [2], "name": ["z"]}), mode="append")
    run_inline(write(tmp_path, MIRROR, ", start: {version: 0}", flush))
    assert read(tmp_path / "mirror", "id", "name") == [(2, "z")]


def test_where_chooses_rows_that_come_and_leave_as_they_change(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    tables = MIRROR.replace("keys: id", "keys: id, where: size > 10")
    write_deltalake(orders, pa.table({"id": [1, 2, 3], "size": [5, 15, 25]}), configuration=FEED)
    run_inline(write(tmp_path, tables))
    DeltaTable(orders).update({"size": "50"}, predicate="id = 1")
    DeltaTable(orders).update({"size": "1"}, predicate="id = 2")
    run_inline(write(tmp_path, tables))

    assert read(tmp_path / "mirror", "id", "size") == [(1, 50), (3, 25)]


def test_an_overwritten_table_is_followed_though_keys_leave_and_come_in_one_version(
    orders: Path, tmp_path: Path
) -> None:
    run_inline(write(tmp_path, f"{MIRROR}\n{HISTORY}"))
    write_deltalake(orders, pa.table({"id": [1, 7], "name": ["A", "g"]}), mode="overwrite")
    run_inline(write(tmp_path, f"{MIRROR}\n{HISTORY}"))

    assert read(tmp_path / "mirror", "id", "name") == [(1, "A"), (7, "g")]
    assert read(tmp_path / "past", "id", "name", "valid_from", "valid_to") == [
        (1, "A", 5, None), (2, "B", 5, 6), (40, "d", 5, 6), (5, "e", 5, 6), (7, "g", 6, None),
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [1, 1000])
def test_a_history_table_has_every_state_without_gaps(orders: Path, tmp_path: Path, rows: int) -> None:
    run_inline(write(tmp_path, HISTORY, ", start: {version: 0}", f"flush: {{rows: {rows}}}"))

    assert read(tmp_path / "past", "id", "name", "valid_from", "valid_to") == [
        (1, "A", 4, None), (1, "a", 0, 4), (2, "B", 2, None), (2, "b", 0, 2), (3, "c", 0, 3),
        (4, "d", 1, 5), (40, "d", 5, None), (5, "e", 4, None),
    ]  # fmt: skip
    assert verify(write(tmp_path, HISTORY)).sound


def test_the_time_of_a_commit_may_be_part_of_the_intervals(orders: Path, tmp_path: Path) -> None:
    tables = HISTORY.replace("keys: id", "keys: id, sequence_by: [__sequence, __timestamp]")
    run_inline(write(tmp_path, tables, ", start: {version: 0}"))

    (row,) = [row for row in read(tmp_path / "past", "id", "valid_from", "valid_to") if row[0] == 3]
    assert (row[1]["__sequence"], row[2]["__sequence"]) == (0, 3)
    assert row[1]["__timestamp"] < row[2]["__timestamp"]


def test_rows_deleted_and_brought_back_by_vectors_are_changes(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    write_deltalake(path, pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), configuration=FEED)
    allow(path)
    run_inline(write(tmp_path, f"{AUDIT}\n{MIRROR}"))
    mark_everywhere(path, [1])
    mark_everywhere(path, [1, 2])
    run_inline(write(tmp_path, f"{AUDIT}\n{MIRROR}"))

    found = read(tmp_path / "audit", "id", "_change_type")
    assert found == [(1, "insert"), (2, "delete"), (2, "insert"), (3, "delete"), (3, "insert")]
    assert read(tmp_path / "mirror", "id") == [(1,)]
    assert verify(write(tmp_path, f"{AUDIT}\n{MIRROR}")).sound


def test_files_that_delta_rs_has_rewritten_lose_rows_by_vectors_too(tmp_path: Path) -> None:
    """It says of their texts that they lie in memory as views, of which Arrow chooses no rows."""
    path = tmp_path / "orders"
    rows = {"id": [1, 2, 3], "name": ["a", "b", "c"], "tags": [["x"], ["y"], ["z"]]}
    write_deltalake(path, pa.table(rows), configuration=FEED)
    DeltaTable(path).update({"name": "'n'"}, predicate="id = 1")
    allow(path)
    run_inline(write(tmp_path, f"{AUDIT}\n{MIRROR}"))
    mark_everywhere(path, [1])
    run_inline(write(tmp_path, f"{AUDIT}\n{MIRROR}"))

    assert len(read(tmp_path / "audit", "id")) == 4
    assert len(read(tmp_path / "mirror", "id")) == 2


def test_versions_before_the_feed_was_on_are_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    write_deltalake(path, pa.table({"id": [1]}))
    DeltaTable(path).alter.set_table_properties(FEED)
    write_deltalake(path, pa.table({"id": [2]}), mode="append")

    with pytest.raises(SourceError, match=r"version 0 of .* changes rows, and the change data feed was off"):
        run_inline(write(tmp_path, AUDIT, ", start: {version: 0}"))

    run_inline(write(tmp_path, AUDIT, ", start: {version: 1}"))
    assert read(tmp_path / "audit", "id") == [(2,)]


def test_compaction_is_no_change(orders: Path, tmp_path: Path) -> None:
    run_inline(write(tmp_path, AUDIT))
    before = read(tmp_path / "audit")
    DeltaTable(orders).optimize.compact()
    run_inline(write(tmp_path, AUDIT))

    assert read(tmp_path / "audit") == before


def test_a_batch_ends_between_versions_so_that_no_reader_sees_half_an_update(
    orders: Path, tmp_path: Path
) -> None:
    run_inline(write(tmp_path, AUDIT, ", start: {version: 0}, max_files: 1", "flush: {rows: 1}"))

    table = DeltaTable(tmp_path / "audit")
    added = [json.loads(one["lakefeed"]).get("rows") for one in reversed(table.history())]
    assert added[1:] == [3, 1, 2, 1, 3, 2]


def test_a_refused_change_is_replayed_though_the_row_was_taken_away(orders: Path, tmp_path: Path) -> None:
    tables = "  mirror: {path: mirror, from: orders, mode: upsert, keys: id, expect: {short: name <> 'A'}}"
    run_inline(write(tmp_path, tables, ", start: {version: 0}"))
    letters = dead_letters(tmp_path / "follow_dead_letters")
    pipeline = write(tmp_path, tables.replace("name <> 'A'", "name <> 'Q'"), ", start: {version: 0}")

    assert [json.loads(one["payload"])["id"] for one in letters] == [1]
    assert (1,) not in read(tmp_path / "mirror", "id")
    assert [one.rows for one in replay(pipeline, DeadLetterFilter())] == [1]
    assert (1, "A") in read(tmp_path / "mirror", "id", "name")
    assert verify(pipeline).sound


def test_columns_that_come_later_come_along(orders: Path, tmp_path: Path) -> None:
    run_inline(write(tmp_path, MIRROR))
    write_deltalake(
        orders, pa.table({"id": [9], "name": ["i"], "size": [3]}), mode="append", schema_mode="merge"
    )
    DeltaTable(orders).update({"size": "4"}, predicate="id = 9")
    run_inline(write(tmp_path, MIRROR))

    assert (9, "i", 4) in read(tmp_path / "mirror", "id", "name", "size")


def test_lag_counts_changes(orders: Path, tmp_path: Path) -> None:
    run_inline(write(tmp_path, AUDIT))
    DeltaTable(orders).update({"name": "'n'"})

    (table,) = status(write(tmp_path, AUDIT)).tables
    assert table.lag == 8


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        (MIRROR.replace(", keys: id", ""), "", "tables.mirror.keys: required with `mode: upsert`"),
        (
            MIRROR.replace("keys: id", "keys: id, sequence_by: name"),
            "",
            "tables.mirror.sequence_by: the change feed 'orders' brings the order of its changes",
        ),
        (AUDIT, ", ignore_changes: true", "ignore_changes has no effect with `change_feed`"),
        (AUDIT, ", exclude: '('", "sources.orders.exclude: is no regular expression"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, tables: str, options: str, message: str) -> None:
    with pytest.raises(PipelineFileError) as told_:
        write(tmp_path, tables, options)

    assert message in str(told_.value)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Pipeline]:
    """Silver is upserted from rows of bronze, and gold and its history follow its changes."""
    text = """\
name: chain
sources: {bronze: {type: delta, path: bronze}}
tables:
  silver: {path: silver, from: bronze, mode: upsert, keys: id, sequence_by: at, delete_when: gone}
  gold: {path: gold, from: silver, mode: upsert}
  past: {path: past, from: gold, mode: history}
  audit: {path: audit, from: silver}
"""
    (tmp_path / "chain.yaml").write_text(text)
    yield Pipeline.from_file(tmp_path / "chain.yaml")


def test_an_upsert_table_feeds_others_by_its_changes(chain: Pipeline, tmp_path: Path) -> None:
    for at, (ids, gone) in enumerate([([1, 2], False), ([2, 3], False), ([1], True)]):
        rows = {"id": ids, "at": [at] * len(ids), "gone": [gone] * len(ids)}
        write_deltalake(tmp_path / "bronze", pa.table(rows), mode="append")
        run_inline(chain)

    assert read(tmp_path / "silver", "id", "at") == read(tmp_path / "gold", "id", "at") == [(2, 1), (3, 1)]
    states = [(row[0], row[1], row[2] is None) for row in read(tmp_path / "past", "id", "at", "valid_to")]
    assert states == [(1, 0, False), (2, 0, False), (2, 1, True), (3, 1, True)]
    assert [row[0] for row in read(tmp_path / "audit", "_change_type")] == [
        "delete", "insert", "insert", "insert", "update_postimage", "update_preimage",
    ]  # fmt: skip
    assert verify(chain).sound


def test_a_rewind_of_silver_is_a_change_that_gold_follows(chain: Pipeline, tmp_path: Path) -> None:
    for at, ids in enumerate([[1, 2], [2, 3], [1, 4]]):
        rows = {"id": ids, "at": [at] * len(ids), "gone": [False] * len(ids)}
        write_deltalake(tmp_path / "bronze", pa.table(rows), mode="append")
        run_inline(chain)
    before = read(tmp_path / "gold", "id", "at")
    done = rewind(chain, "silver", to_version=2)
    run_inline(chain)

    assert read(tmp_path / "gold", "id", "at") == read(tmp_path / "silver", "id", "at") == before
    assert "table gold follows the changes of silver" in done.notes[0]
    assert verify(chain).sound


@pytest.mark.parametrize("vectors", [False, True])
def test_large_versions_are_read_by_several_tasks_and_followed_as_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: bool
) -> None:
    monkeypatch.setattr("lakefeed.sources.dense_offsets.ROWS_A_TASK", 10)
    monkeypatch.setattr(InlineFlow, "cores", lambda flow: Cores(running=3, executors=0, tasks=3))
    orders = tmp_path / "orders"
    names = [f"n{number}" for number in range(100)]
    write_deltalake(orders, pa.table({"id": range(100), "name": names}), configuration=FEED)
    DeltaTable(orders).update({"name": "'new'"}, predicate="id % 3 = 0")
    DeltaTable(orders).update({"id": "id + 1000"}, predicate="id % 3 = 1")
    if vectors:
        allow(orders)
        mark_everywhere(orders, [0, 10, 50, 99])
    source = DeltaSource(path=str(orders), change_feed=True, start={"version": 0})
    client, tasks = DeltaClient(source, "orders"), []
    at, ends = client.start(), client.latest()
    first = at["0"]
    while at != ends:
        end = client.next_end(at, ends, Allowance(1, 10**9))
        cut, whole = (client.splits([OffsetRange("0", at["0"], end["0"])], cores) for cores in (3, 1))
        assert _brought(source, cut) == _brought(source, whole)
        tasks.append(len(cut))
        at = end

    run_inline(write(tmp_path, f"{MIRROR}\n{HISTORY}", ", start: {version: 0}"))

    assert tasks[0] == tasks[-1] == 3
    intervals, there = _replayed(_brought(source, client.splits([OffsetRange("0", first, ends["0"])], 1)))
    assert read(tmp_path / "mirror", "id", "name") == there
    assert read(tmp_path / "past", "id", "name", "valid_from", "valid_to") == intervals


def _replayed(told: list[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What changes mean: each state with the versions that it was there, and the rows that are left."""
    states: list[tuple[Any, ...]] = []
    there: dict[tuple[int, str], int] = {}
    for _, key, kind, version, name in sorted(told, key=lambda one: (one[3], one[2] in CAME)):
        if kind not in CAME:
            states.append((key, name, there.pop((key, name)), version))
        else:
            there[key, name] = version
    states += [(*row, version, None) for row, version in there.items()]
    return sorted(states, key=repr), sorted(there, key=repr)


def _brought(source: DeltaSource, tasks: Iterable[Split]) -> list[tuple[Any, ...]]:
    """Changes in the order of the tasks: where each stands, what it is, and its row."""
    found = []
    for task in tasks:
        for events in source.read(task):
            offsets = events.origin().column("offset").to_pylist()
            for offset, row in zip(offsets, events.columns.to_pylist(), strict=True):
                found.append((offset, row["id"], row["_change_type"], row["_commit_version"], row["name"]))
    assert [one[0] for one in found] == sorted({one[0] for one in found})
    return found


def test_version_that_is_larger_than_a_batch_is_read_once(tmp_path: Path) -> None:
    path, count = tmp_path / "orders", 30_000
    write_deltalake(path, pa.table({"id": [0], "name": ["a"]}), configuration=FEED)
    write_deltalake(path, pa.table({"id": range(1, count), "name": ["x" * 20] * (count - 1)}), mode="append")
    pipeline = write(tmp_path, AUDIT, ", start: {version: 0}, flush: {bytes: 1KB}")

    # It was read again and again, without an end.
    run = threading.Thread(target=run_inline, args=[pipeline], daemon=True)
    run.start()
    run.join(120)

    assert not run.is_alive()
    assert DeltaTable(tmp_path / "audit").to_pyarrow_table().num_rows == count
