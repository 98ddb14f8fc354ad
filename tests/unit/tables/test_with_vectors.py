"""Every operation on a table whose rows are deleted in deletion vectors: none of them comes back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.errors import Conflict, TableError
from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.tables.data_files import data_files
from lakefeed.tables.detail.contents import contents_of
from lakefeed.tables.detail.detail import describe
from lakefeed.tables.log.log import Log
from lakefeed.tables.operations import delete as deletion
from lakefeed.tables.operations import repartition as layout
from lakefeed.tables.operations import replace as replacement
from lakefeed.tables.operations import restore, rewind, vacuum
from lakefeed.tables.operations.changes import changes
from lakefeed.tables.rewrite import compact
from lakefeed.tables.rewrite import z_order as clustering
from lakefeed.tables.rewrite.tiers import due_for_compaction
from lakefeed.tables.schema import add_columns
from lakefeed.tables.verify.verify import verify_log
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.mode import Change
from lakefeed.tables.write.overwrite import OverwriteMode
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import age_log, ids, open_any
from support.vectors import allow, mark, mark_everywhere

INFO = {"kind": "test", "by": "test"}
MANY = range(0, 3000, 3)
"""So many that their bitmap has a file of its own."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two files of 3,000 rows, of which every third is deleted in each."""
    path = tmp_path / "table"
    for start in (0, 3000):
        rows = pa.table({"id": range(start, start + 3000), "day": ["d"] * 3000})
        write_deltalake(path, rows, mode="append", partition_by=["day"])
    allow(path)
    mark_everywhere(path, MANY)
    return path


LEFT = [n for n in range(6000) if n % 3]


def log_of(path: Path) -> Log:
    found = Log.open(open_any(path).store)
    assert found is not None
    return found


def vectors_in(path: Path) -> set[str]:
    return {file.name for file in path.glob("deletion_vector_*.bin")}


def test_compaction_purges_what_was_deleted(path: Path) -> None:
    table = open_any(path)

    compact.run(table, compact.plan(table), INFO, file_writer)

    (file,) = data_files(open_any(path))
    assert (file.rows, file.vector) == (4000, None)
    assert ids(path) == LEFT
    assert not [one for one in verify_log(log_of(path)).findings if one.kind == "count"]


def test_clustering_keeps_rows_deleted(path: Path) -> None:
    table = open_any(path)

    clustering.run(table, clustering.plan(table, ["id"]), INFO, file_writer)

    assert ids(path) == LEFT


def test_compaction_gives_way_to_who_deletes_further_rows_meanwhile(path: Path) -> None:
    table = open_any(path)
    plan = compact.plan(table)
    mark_everywhere(path, [1])

    with pytest.raises(Conflict):
        compact.run(table, plan, INFO, file_writer)

    assert ids(path) == [n for n in LEFT if n not in (1, 3001)]


def test_delete_replace_and_new_partitions_keep_rows_deleted(path: Path, tmp_path: Path) -> None:
    deletion.run(open_any(path), deletion.plan(open_any(path), "id < 5"), INFO)
    assert ids(path) == LEFT[3:]
    write_deltalake(tmp_path / "new", pa.table({"id": [5], "day": ["e"]}))
    source = replacement.Rows.at(str(tmp_path / "new"), {})
    replacement.run(open_any(path), replacement.plan(open_any(path), "id = 5", source), INFO)
    assert ids(path) == LEFT[3:]
    layout.run(open_any(path), layout.plan(open_any(path), []), INFO)

    assert ids(path) == LEFT[3:]
    assert features_of(path) == ["appendOnly", "deletionVectors", "invariants"]


def features_of(path: Path) -> list[str]:
    return sorted(DeltaTable(path).protocol().writer_features or ())


def test_rows_of_another_table_are_counted_and_taken_without_deleted_ones(path: Path) -> None:
    source = replacement.Rows.at(str(path), {})

    assert source.count == 4000
    assert sum(batch.num_rows for batch in source.batches(source.schema)) == 4000


def test_restore_brings_rows_back_that_were_deleted_later_and_only_those(path: Path) -> None:
    version = open_any(path).version
    mark_everywhere(path, [1, 2])
    plan = restore.plan(open_any(path), version)

    assert (plan.brought_back.rows, plan.taken_away.rows) == (4000, 3996)
    restore.run(open_any(path), plan, INFO)

    assert ids(path) == LEFT
    assert [file.deleted for file in data_files(open_any(path))] == [1000, 1000]
    mark_everywhere(path, [2])
    assert ids(path) == [n for n in LEFT if n not in (2, 3002)]


def test_rewind_brings_rows_back_and_misses_vectors_that_are_gone(path: Path) -> None:
    version = open_any(path).version
    older = vectors_in(path)
    mark_everywhere(path, [1, 2])
    found = rewind.plan_rewind(log_of(path), version, None)
    rewind.restore(open_any(path), found, {}, {"kind": "rewind", "to": version})
    assert ids(path) == LEFT

    mark_everywhere(path, [1])
    for name in older:
        (path / name).unlink()
    with pytest.raises(TableError, match=rf"1 file of it is gone, such as {older.pop()}"):
        rewind.plan_rewind(log_of(path), version, None)


def test_vacuum_keeps_vectors_in_use_and_deletes_others_when_they_are_old(path: Path) -> None:
    (first,) = vectors_in(path)
    mark_everywhere(path, [1])
    (orphan := path / "deletion_vector_7e77b9c6-719f-45c7-b001-202617eec617.bin").write_bytes(b"x")
    newest = vectors_in(path) - {first, orphan.name}

    kept = vacuum.plan(open_any(path))
    assert not kept.files
    age_log(path, 100)
    plan = vacuum.plan(open_any(path))
    vacuum.run(open_any(path), plan, INFO)

    assert {file.path for file in plan.files} == {first, orphan.name}
    assert vectors_in(path) == newest
    assert ids(path) == [n for n in LEFT if n not in (1, 3001)]


def test_vacuum_knows_from_a_checkpoint_which_vectors_were_removed_lately(path: Path) -> None:
    before = vectors_in(path)
    mark_everywhere(path, [1])
    DeltaTable(path).create_checkpoint()

    plan = vacuum.plan(open_any(path), retain=3600, allow_short=True)

    assert before and not plan.files


@pytest.mark.parametrize("feed", [False, True])
def test_changes_show_which_rows_were_deleted(feed: bool, tmp_path: Path) -> None:
    configuration = {"delta.enableChangeDataFeed": "true"} if feed else None
    write_deltalake(tmp_path, pa.table({"id": range(10)}), configuration=configuration)
    allow(tmp_path)
    mark_everywhere(tmp_path, [3, 4])
    version = mark_everywhere(tmp_path, [7])
    table = open_any(tmp_path)

    found = changes(table, version - 1, version)

    told = [(row["id"], row["_change_type"]) for batch in found.batches for row in batch.to_pylist()]
    if feed:
        assert told == [(3, "delete"), (4, "delete"), (7, "delete")]
    else:
        assert not told and list(found.left_out) == [version - 1, version]


def test_verify_counts_rows_without_deleted_ones_and_names_a_vector_that_is_gone(path: Path) -> None:
    found = verify_log(log_of(path))
    assert (found.rows, found.missing) == (4000, set())

    (gone,) = vectors_in(path)
    (path / gone).unlink()

    text = next(one.text for one in verify_log(log_of(path)).findings if one.kind == "file")
    assert text == f"{gone} is missing, which says that 2,000 rows of 2 files are deleted"


def test_detail_counts_rows_without_deleted_ones(path: Path) -> None:
    table = open_any(path)

    found = describe(table)

    assert (found.table.rows, contents_of(table, 1).rows) == (4000, 4000)
    assert (found.commits[0].rows_added, found.commits[0].rows_removed) in ((None, None), (0, 2000))


def test_overwrite_takes_the_place_of_files_with_vectors(path: Path) -> None:
    table = open_any(path)
    write_deltalake(path, pa.table({"id": [-1], "day": ["d"]}), mode="append")
    table.refresh()
    before = [file for file in data_files(table) if file.vector]
    (kept,) = [file for file in data_files(table) if not file.vector]

    mode = OverwriteMode("p")
    info = {"pipeline": "p", "source": "s", "rows": 1, "ranges": {"0": [0, 1, 1, 0]}}
    commit(table, Change([written(path)], {"p/s/0": 0}, {"p/s/0": None}, info), mode, retries=0)

    assert len(before) == 2 and kept.path
    assert ids(path) == [77]
    assert not [one for one in verify_log(log_of(path)).findings if "left" in one.text]


def written(path: Path) -> WrittenFile:
    lake = open_any(path)
    writer = TableWriter(lake.store, FileTarget(lake.schema, tuple(lake.partition_columns)))
    writer.write(pa.RecordBatch.from_pydict({"id": [77], "day": ["d"]}, schema=lake.schema))
    (file,) = writer.close()
    return file


def test_a_column_that_is_added_adds_no_feature(path: Path) -> None:
    table = open_any(path)

    add_columns(table, [pa.field("late", pa.string())], INFO)

    assert features_of(path) == ["appendOnly", "deletionVectors", "invariants"]
    assert ids(path) == LEFT


def test_rows_of_one_partition_are_marked_alone(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2, 3, 4], "day": ["a", "a", "b", None]})
    write_deltalake(tmp_path, rows, partition_by=["day"])
    allow(tmp_path)

    mark(tmp_path, lambda table: {f.path: [1] for f in data_files(table) if dict(f.partition)["day"] == "a"})

    assert ids(tmp_path) == [1, 3, 4]


def test_files_with_many_deleted_rows_are_written_again_be_they_large_or_alone(path: Path) -> None:
    table = open_any(path)
    compact.run(table, compact.plan(table), INFO, file_writer)
    mark_everywhere(path, range(0, 700))
    table.refresh()

    def due(share: float, cold: float) -> int:
        found = due_for_compaction(
            table, target_size=2, min_files=8, where=None, cold_before=cold, max_deleted=share
        )
        return len(found)

    assert (due(0.4, 0), due(0.4, 9e9)) == (0, 0)
    assert (due(0.3, 0), due(0.3, 9e9)) == (1, 1)
    compact.run(table, compact.plan(table, max_deleted=0.1), INFO, file_writer)
    assert [(file.rows, file.deleted) for file in data_files(open_any(path))] == [(3300, 0)]
