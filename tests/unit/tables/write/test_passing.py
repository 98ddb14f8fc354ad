"""An upsert beside a faster writer: what does not meet its files and keys does not make it decide again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.errors import Fenced
from lakefeed.tables.rewrite import compact
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write import commit as commits
from lakefeed.tables.write.deduplicate import DedupeRules, DeduplicateMode
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.mode import Change, NewEntry
from lakefeed.testing.landed import read_rows
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import open_any
from support.keyed_table import KeyedTable

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64())])
Meddle = Callable[[KeyedTable, int], None]


class Race:
    """Lets others commit right before each of so many tries, and counts how often an upsert decides."""

    def __init__(
        self, table: KeyedTable, monkeypatch: pytest.MonkeyPatch, meddle: Meddle, times: int
    ) -> None:
        self.decided = 0
        self.made: list[str] = []
        left = iter(range(times))
        attempt, entry = commits.try_entry, table.mode.entry

        def overtaken(lake: LakeTable, new: NewEntry, token: str) -> Exception | None:
            if (number := next(left, None)) is not None:
                meddle(table, number)
            return attempt(lake, new, token)

        def counted(lake: LakeTable, change: Change) -> NewEntry:
            self.decided += 1
            found = entry(lake, change)
            self.made += found.made
            return found

        monkeypatch.setattr(commits, "try_entry", overtaken)
        monkeypatch.setattr(table.mode, "entry", counted)


def positions(table: KeyedTable, number: int) -> None:
    open_any(table.path).put([{"commitInfo": {}}, {"txn": {"appId": "other/clicks/0", "version": number}}])


def append(table: KeyedTable, number: int) -> None:
    write_deltalake(table.path, pa.table({"id": [1000 + number], "at": [1]}, SCHEMA), mode="append")


def append_of_its_key(table: KeyedTable, number: int) -> None:
    write_deltalake(table.path, pa.table({"id": [7], "at": [9]}, SCHEMA), mode="append")


def delete_others(table: KeyedTable, number: int) -> None:
    DeltaTable(table.path).delete("id = 2")


def compact_others(table: KeyedTable, number: int) -> None:
    other = open_any(table.path)
    compact.run(other, compact.plan(other, where="at = 5"), {"kind": "compact", "by": "test"}, file_writer)


def compact_all(table: KeyedTable, number: int) -> None:
    other = open_any(table.path)
    compact.run(other, compact.plan(other), {"kind": "compact", "by": "test"}, file_writer)


@pytest.fixture
def table(tmp_path: Path) -> KeyedTable:
    made = KeyedTable(tmp_path / "rows", SCHEMA, KeyRules(("id",), ("at",)), partition_by=["at"])
    made.apply({"id": 1, "at": 1}, {"id": 2, "at": 1})
    write_deltalake(made.path, pa.table({"id": [50], "at": [5]}, SCHEMA), mode="append")
    write_deltalake(made.path, pa.table({"id": [51], "at": [5]}, SCHEMA), mode="append")
    made.table.refresh()
    return made


@pytest.mark.parametrize(
    ("meddle", "times", "decided"),
    [
        (positions, 30, 1),
        (append, 20, 1),
        (compact_others, 1, 1),
        (append_of_its_key, 1, 2),
        (delete_others, 1, 2),
        (compact_all, 1, 2),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_only_what_meets_it_makes_an_upsert_decide_again(
    meddle: Meddle, times: int, decided: int, table: KeyedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_deltalake(table.path, pa.table({"id": [3], "at": [1]}, SCHEMA), mode="append")
    table.table.refresh()
    race = Race(table, monkeypatch, meddle, times)

    table.apply({"id": 1, "at": 3}, {"id": 7, "at": 4})

    assert race.decided == decided
    keys = [(row["id"], row["at"]) for row in table.rows() if row["id"] in (1, 7)]
    assert keys == [(1, 3), (7, 9 if meddle is append_of_its_key else 4)]
    live = {Path(uri).name for uri in DeltaTable(table.path).file_uris()}
    stored = {file.name for file in Path(table.path).glob("at=*/*.parquet")}
    assert live <= stored
    # Files of the decisions that were given up are gone.
    assert len([path for path in race.made if Path(path).name in stored]) == len(race.made) // decided


@pytest.mark.parametrize(
    ("meddle", "times", "decided"),
    [
        (positions, 30, 1),
        (append, 20, 1),
        (compact_all, 1, 1),
        (append_of_its_key, 1, 2),
        (delete_others, 1, 2),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_only_what_meets_it_makes_a_deduplication_decide_again(
    meddle: Meddle, times: int, decided: int, table: KeyedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.mode = DeduplicateMode(DedupeRules(("id",)), table.target)
    race = Race(table, monkeypatch, meddle, times)

    entry = table.apply({"id": 1, "at": 3}, {"id": 7, "at": 4})

    assert race.decided == decided
    assert entry.commit_info["duplicates"] == (2 if meddle is append_of_its_key else 1)
    keys = [(row["id"], row["at"]) for row in table.rows() if row["id"] in (1, 7)]
    assert keys == [(1, 1), (7, 9 if meddle is append_of_its_key else 4)]


def test_another_instance_of_the_pipeline_is_not_passed(
    table: KeyedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_by_another(table: KeyedTable, number: int) -> None:
        open_any(table.path).put([{"commitInfo": {}}, {"txn": {"appId": "shop/clicks/0", "version": 99}}])

    race = Race(table, monkeypatch, read_by_another, 1)

    with pytest.raises(Fenced):
        table.apply({"id": 1, "at": 3})

    assert race.decided == 1
    assert [row["at"] for row in table.rows() if row["id"] == 1] == [1]


def test_tombstones_of_another_pipeline_are_not_passed(
    table: KeyedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = table.beside("other")

    def delete(table: KeyedTable, number: int) -> None:
        if not number:
            other.apply({"id": 7, "at": 6, "op": "delete"})

    race = Race(table, monkeypatch, delete, 1)
    table.apply({"id": 7, "at": 4})

    assert race.decided == 2
    assert 7 not in [row["id"] for row in table.rows()]


def test_versions_that_come_while_the_log_is_cleaned_are_not_passed(
    table: KeyedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = Race(table, monkeypatch, positions, 1)
    confirm, looked = table.table.confirm, iter(range(9))

    def cleaned() -> None:
        if next(looked) == 1:
            append_of_its_key(table, 0)
            table.table.refresh()
        confirm()

    monkeypatch.setattr(table.table, "confirm", cleaned)
    table.apply({"id": 1, "at": 3}, {"id": 7, "at": 4})

    assert race.decided == 2
    assert [row["at"] for row in table.rows() if row["id"] == 7] == [9]


def test_rows_of_others_have_their_keys_where_a_mapped_column_is_that_of_the_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapping = {"delta.columnMapping.mode": "name"}
    rules = KeyRules(("id",), ("at",))
    table = KeyedTable(tmp_path / "rows", SCHEMA, rules, partition_by=["id"], properties=mapping)
    table.apply({"id": 1, "at": 1})
    race = Race(table, monkeypatch, append_of_its_key, 1)

    table.apply({"id": 1, "at": 3}, {"id": 7, "at": 4})

    assert race.decided == 2
    assert [(row["id"], row["at"]) for row in read_rows(table.path)[1] if row["id"] == 7] == [(7, 9)]
