"""What `verify` says of a table that somebody damaged, and of one that is sound; from the log alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.files import WrittenFile
from lakefeed.stores import open_store
from lakefeed.tables.log.log import Log
from lakefeed.tables.verify.verify import VerifiedLog, verify_log
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from support.fed_table import IDS, entry_file, make_table

HEAD = "shop/clicks/"


class Table:
    """A table of ids, each of which is its offset, committed as a run commits."""

    def __init__(self, folder: Path, properties: dict[str, str] | None = None) -> None:
        self.path = folder / "events"
        self.path.mkdir()
        self.table = make_table(
            self.path,
            properties=properties,
            commit_info={"pipeline": "shop", "source": "clicks", "kind": "create"},
        )

    def read(self, start: int, end: int, letters: int = 0, **told: Any) -> int:
        """Commit the events of a range, the last of them as dead letters."""
        rows = end - start - letters
        commit_info: dict[str, Any] = {
            "pipeline": "shop",
            "source": "clicks",
            "kind": "rows" if rows else "position",
            "rows": rows,
            "ranges": {"0": [start, end, end - start, letters]},
        }
        transactions = told.pop("transactions", {f"{HEAD}0": end - 1})
        files = [self.file(start, end - letters)] if rows else []
        return append(self.table, Change(files, transactions, {}, commit_info | told), retries=0)

    def file(self, start: int, end: int) -> WrittenFile:
        name = f"{start}-{end}-{self.table.version}.parquet"
        pq.write_table(pa.table({"id": list(range(start, end))}, schema=IDS), self.path / name)
        return WrittenFile(
            name, (self.path / name).stat().st_size, {}, json.dumps({"numRecords": end - start}), end - start
        )

    def log(self, version: int) -> Path:
        return entry_file(self.path, version)

    def write_log(self, *actions: dict[str, Any]) -> None:
        """A version as some other writer would write it."""
        version = DeltaTable(self.path).version() + 1
        self.log(version).write_text("\n".join(json.dumps(action) for action in actions))
        self.table.refresh()

    def verify_log(self) -> VerifiedLog:
        log = Log.open(open_store(str(self.path), {}))
        assert log is not None
        return verify_log(log)

    def findings(self) -> list[str]:
        return [str(finding) for finding in self.verify_log().findings]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_table_that_only_runs_have_written_is_sound(table: Table) -> None:
    table.read(0, 10)
    table.read(10, 20, letters=3)
    table.read(20, 25, letters=5)

    verified = table.verify_log()

    (chain,) = verified.chains.values()
    assert verified.findings == []
    assert verified.unchecked == []
    assert (verified.first, verified.version, verified.rows, verified.files) == (0, 3, 17, 2)
    assert (chain.partition, chain.first, chain.next, chain.read, chain.letters) == ("clicks/0", 0, 25, 25, 8)


def test_gap_is_named_with_version_and_offsets(table: Table) -> None:
    table.read(0, 10)
    table.read(15, 20)

    verified = table.verify_log()

    (finding,) = verified.findings
    assert str(finding) == (
        "gap: version 2: clicks/0: offsets 10 to 14 are missing: "
        "the next expected offset was 10, the commit starts at 15"
    )
    assert (finding.version, finding.partition, finding.start, finding.end) == (2, "clicks/0", 10, 15)


def test_repeated_range_is_named_with_version_and_offsets(table: Table) -> None:
    table.read(0, 10)
    table.read(5, 20)

    assert table.findings() == [
        "overlap: version 2: clicks/0: offsets 5 to 9 were read twice: the next expected offset was 10"
    ]


def test_position_that_was_moved_by_hand_is_named(table: Table) -> None:
    table.read(0, 10)
    table.write_log({"txn": {"appId": f"{HEAD}0", "version": 3}})

    assert table.findings() == [
        "reset: version 2: clicks/0: the position was set from 10 to 4 without reading: "
        "offsets 4 to 9 are read again"
    ]


def test_position_that_does_not_end_where_the_range_does_is_named(table: Table) -> None:
    table.read(0, 10, transactions={f"{HEAD}0": 12})

    assert table.findings() == [
        "reset: version 1: clicks/0: the position was set from 10 to 13 without reading: "
        "offsets 10 to 12 were never read"
    ]


def test_events_that_the_source_had_lost_are_a_note_and_no_gap(table: Table) -> None:
    table.read(0, 10)
    table.read(15, 20, lost={"0": [10, 15]})
    table.read(0, 5, lost={"0": [20, 0]})

    verified = table.verify_log()

    assert verified.findings == []
    assert verified.notes == [
        "version 2: clicks/0: offsets 10 to 14 were gone at the source (`on_data_loss: skip`)",
        "version 3: clicks/0: the source started again from the beginning: "
        "the next expected offset was 20, reading continued at 0 "
        "(`on_data_loss: skip`, or read anew by `lakefeed snapshot`)",
    ]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"rows": 9}, "the commit reports 9 rows, its files have 10"),
        (
            {"ranges": {"0": [0, 10, 10, 1]}},
            "10 events read and 1 dead letters do not add up to 10 rows",
        ),
        ({"ranges": {"0": [0, 10, 11, 1]}}, "clicks/0: offsets 0 to 9 cannot be 11 events, 1 of them dead"),
    ],
)
def test_counts_that_do_not_add_up_are_named(table: Table, told: dict[str, Any], words: str) -> None:
    table.read(0, 10, **told)

    assert f"count: version 1: {words}" in table.findings()


def test_events_that_were_left_out_on_purpose_add_up(table: Table) -> None:
    table.read(0, 10, ranges={"0": [0, 12, 12, 0]}, filtered=2, transactions={f"{HEAD}0": 11})

    assert table.findings() == []


def test_commit_of_another_kind_that_reads_is_checked_for_its_offsets_and_not_for_its_rows(
    table: Table,
) -> None:
    table.read(0, 10)
    table.read(10, 20, kind="merge", rows=4)
    table.read(25, 30, kind="merge", rows=4)

    assert table.findings() == [
        "gap: version 3: clicks/0: offsets 20 to 24 are missing: "
        "the next expected offset was 20, the commit starts at 25"
    ]


def test_missing_and_changed_files_are_named(table: Table) -> None:
    table.read(0, 10)
    table.read(10, 20)
    (table.path / "0-10-0.parquet").unlink()
    with (table.path / "10-20-1.parquet").open("ab") as file:
        file.write(b"x")
    size = (table.path / "10-20-1.parquet").stat().st_size

    assert table.findings() == [
        "file: version 2: 0-10-0.parquet with 10 rows is missing",
        f"file: version 2: 10-20-1.parquet has {size} bytes, the log says {size - 1}",
    ]


def test_rows_of_another_writer_are_named_with_who_wrote_them(table: Table) -> None:
    table.read(0, 10)
    write_deltalake(table.path, pa.table({"id": [1, 2]}, schema=IDS), mode="append")
    table.table.refresh()
    table.read(10, 20)
    DeltaTable(table.path).delete("id < 5")

    added, removed = table.findings()

    engine = DeltaTable(table.path).history(1)[0]["engineInfo"]
    assert added == f"foreign: version 2: 2 rows added by WRITE of {engine}, not by Lakefeed"
    assert removed == (f"foreign: version 4: 5 rows added, 12 removed by DELETE of {engine}, not by Lakefeed")


def test_restore_that_left_the_positions_behind_is_named_with_the_missing_offsets(table: Table) -> None:
    table.read(0, 10)
    table.read(10, 20)
    DeltaTable(table.path).restore(1)

    assert table.findings() == [
        "restore: version 3: clicks/0: the table was restored to version 1 and the position left at 20: "
        "the rows of offsets 10 to 19 are missing"
    ]


def test_deletion_that_lakefeed_made_on_purpose_is_a_note(table: Table) -> None:
    table.read(0, 10)
    from lakefeed.tables.table import commit_properties

    commit_info = {"pipeline": "shop", "kind": "delete"}
    DeltaTable(table.path).delete("id < 5", commit_properties=commit_properties({}, commit_info))

    verified = table.verify_log()

    assert verified.findings == []
    assert verified.notes == ["version 2: delete: 5 rows added, 10 removed"]


def test_compaction_and_vacuum_leave_the_proof_as_it_was(table: Table) -> None:
    for start in range(0, 50, 10):
        table.read(start, start + 10)
    delta = DeltaTable(table.path)
    delta.optimize.compact()
    delta.vacuum(0, dry_run=False, enforce_retention_duration=False)

    verified = table.verify_log()

    assert [str(one) for one in verified.findings] == []
    assert (verified.rows, verified.files) == (50, 1)
    assert not (table.path / "0-10-0.parquet").exists()


def test_compaction_that_changed_the_number_of_rows_is_named(table: Table) -> None:
    table.read(0, 10)
    rewritten = table.file(0, 9)
    add = {
        "path": rewritten.path,
        "partitionValues": {},
        "size": rewritten.size,
        "modificationTime": 0,
        "dataChange": False,
        "stats": rewritten.stats,
    }
    remove = {"path": "0-10-0.parquet", "deletionTimestamp": 0, "dataChange": False}
    table.write_log({"commitInfo": {"operation": "OPTIMIZE"}}, {"add": add}, {"remove": remove})

    assert table.findings() == ["count: version 2: OPTIMIZE made 9 rows out of 10"]


def test_second_compaction_of_the_same_file_is_named(table: Table) -> None:
    table.read(0, 10)
    for _ in range(2):
        file = table.file(0, 10)
        add = {
            "path": f"{file.path}",
            "partitionValues": {},
            "size": file.size,
            "modificationTime": 0,
            "dataChange": False,
            "stats": file.stats,
        }
        remove = {"path": "0-10-0.parquet", "deletionTimestamp": 0, "dataChange": False}
        table.write_log({"commitInfo": {"operation": "OPTIMIZE"}}, {"add": add}, {"remove": remove})

    assert table.findings()[0] == (
        "count: version 3: it replaces 0-10-0.parquet, which the table does not hold: rows may be there twice"
    )


def test_after_a_clean_up_of_the_log_the_rest_is_proved_and_the_beginning_is_told(table: Table) -> None:
    table.read(0, 10)
    table.read(10, 20)
    DeltaTable(table.path).create_checkpoint()
    table.read(20, 30)
    for version in range(3):
        table.log(version).unlink()

    verified = table.verify_log()
    table.read(35, 40)
    damaged = table.findings()

    assert verified.findings == []
    assert (verified.first, verified.rows) == (3, 30)
    assert verified.unchecked == [
        "the log begins with version 3: the history of the rows and positions of version 2 is no longer known"
    ]
    assert damaged == [
        "gap: version 4: clicks/0: offsets 30 to 34 are missing: "
        "the next expected offset was 30, the commit starts at 35"
    ]


def test_torn_version_is_named_and_what_cannot_be_checked_behind_it(table: Table) -> None:
    table.read(0, 10)
    table.read(10, 20)
    text = table.log(2).read_text()
    table.log(2).write_text(text[: len(text) // 2])

    verified = table.verify_log()

    assert [str(one).partition(" cannot be read")[0] for one in verified.findings] == ["log: version 2:"]
    assert verified.unchecked == ["nothing from version 2 on could be checked"]


def test_version_that_is_missing_in_the_middle_is_named_and_the_proof_goes_on_behind_a_checkpoint(
    table: Table,
) -> None:
    for start in range(0, 40, 10):
        table.read(start, start + 10)
    DeltaTable(table.path).create_checkpoint()
    table.read(40, 50)
    table.log(2).unlink()

    verified = table.verify_log()

    assert [str(one) for one in verified.findings] == [
        "log: version 2: 1 version missing in the log, the first is 2"
    ]
    assert (verified.first, verified.rows) == (5, 50)


def test_unreadable_checkpoint_is_named(table: Table) -> None:
    table.read(0, 10)
    DeltaTable(table.path).create_checkpoint()
    table.read(10, 20)
    for version in range(2):
        table.log(version).unlink()
    (table.path / "_delta_log" / f"{1:020d}.checkpoint.parquet").write_bytes(b"torn")

    verified = table.verify_log()

    assert verified.findings[0].text.startswith("the checkpoint cannot be read")
    assert verified.unchecked == ["no version can be rebuilt from the log, so nothing else was checked"]


def test_state_from_a_checkpoint_is_the_state_from_the_versions(table: Table) -> None:
    table.read(0, 10)
    table.read(10, 20)
    copied = table.path.with_name("copied")
    shutil.copytree(table.path, copied)
    DeltaTable(copied).create_checkpoint()
    for version in range(2):
        entry_file(copied, version).unlink()

    whole, cleaned = Log.open(open_store(str(table.path), {})), Log.open(open_store(str(copied), {}))

    assert whole is not None and cleaned is not None
    assert cleaned.oldest == 2
    assert cleaned.snapshot(2) == whole.snapshot(2)


def test_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    assert Log.open(open_store(str(tmp_path / "nothing"), {})) is None
