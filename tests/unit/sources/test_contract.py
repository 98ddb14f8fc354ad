"""Sources that need no service keep the contract: `generate`, `delta`, and a small source of columns."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.pipeline import connectors
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reprocess.replay import replay
from support.folder_source import SHIFT
from support.http_source import append, journal_of
from support.source_contract import SourceCase, SourceContract, run


class TestGenerate(SourceContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> SourceCase:
        return SourceCase(
            "generate", tmp_path, lambda count: f"rows: {count}, partitions: 3, bad_ratio: 0.05"
        )


class TestDelta(SourceContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> SourceCase:
        """A table of two partitions whose versions add 50 rows each; every tenth row has a large `size`."""
        table = tmp_path / "items"

        def options(count: int) -> str:
            there = DeltaTable(table).to_pyarrow_table().num_rows if table.exists() else 0
            for first in range(there, count, 50):
                ids = range(first, first + 50)
                columns = {
                    "event_id": list(ids),
                    "size": [2**40 if one % 10 == 3 else one for one in ids],
                    "half": [one % 2 for one in ids],
                }
                write_deltalake(table, pa.table(columns), mode="append", partition_by=["half"])
            return f"path: {table}, max_files: 3"

        return SourceCase("delta", tmp_path, options, "event_id: long, size: int", "ignore")


class TestChangeFeed(SourceContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> SourceCase:
        """Each version inserts 50 rows; every tenth has a large `size`."""
        table = tmp_path / "items"

        def options(count: int) -> str:
            there = DeltaTable(table).to_pyarrow_table().num_rows if table.exists() else 0
            for first in range(there, count, 50):
                ids = range(first, first + 50)
                columns = {"event_id": list(ids), "size": [2**40 if one % 10 == 3 else one for one in ids]}
                feed = {"delta.enableChangeDataFeed": "true"}
                write_deltalake(table, pa.table(columns), mode="append", configuration=feed)
            return f"path: {table}, change_feed: true, max_files: 3"

        return SourceCase("delta", tmp_path, options, "event_id: long, size: int", "ignore")


class TestFiles(SourceContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> SourceCase:
        """Files of 25 lines, every tenth of them cut off; two files have the same time, and names descend."""
        items = tmp_path / "items"
        items.mkdir()

        def options(count: int) -> str:
            for number in range(count // 25):
                file = items / f"{1000 - number}.json"
                if not file.exists():
                    ids = range(number * 25, number * 25 + 25)
                    lines = [f'{{"event_id": {one}' + ("}" if one % 10 != 3 else "") for one in ids]
                    file.write_text("\n".join(lines))
                    os.utime(file, (number // 2, number // 2))
            return f"path: {items}, format: json, max_files: 3"

        return SourceCase("files", tmp_path, options)


class TestHttp(SourceContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> SourceCase:
        """A journal of two streams with requests of 5 events; every tenth event is cut off."""

        def options(count: int) -> str:
            made = f"streams: [even, odd], journal: {tmp_path / 'journal'}"
            with journal_of(tmp_path / "journal", quota=16_000) as journal:
                for first in range(sum(journal.contents().next.values()), count, 5):
                    events = [b'{"event_id":%d}' % one for one in range(first, first + 5)]
                    events[3] = events[3][: len(events[3]) - first % 2]
                    append(journal, "odd" if first % 2 else "even", events)
            return made

        return SourceCase("http", tmp_path, options)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourceCase:
    """Files of 25 rows; the `size` of every tenth row is larger than its column."""
    known = {**connectors._ROOMS["source"], "folder": "support.folder_source:FolderSource"}
    monkeypatch.setitem(connectors._ROOMS, "source", known)
    items = tmp_path / "items"
    items.mkdir()

    def options(count: int) -> str:
        for number in range(count // 25):
            ids = range(number * 25, number * 25 + 25)
            columns = {"event_id": list(ids), "size": [2**40 if one % 10 == 3 else one for one in ids]}
            if number >= 8:
                columns["note"] = [f"note {one}" for one in ids]
            if not (items / f"{number}.parquet").exists():
                pq.write_table(pa.table(columns), items / f"{number}.parquet")
        return f"path: {items}"

    return SourceCase("folder", tmp_path, options, "event_id: long, size: int", "add")


class TestColumns(SourceContract):
    @pytest.fixture
    def case(self, folder: SourceCase) -> SourceCase:
        return folder


def test_columns_that_a_source_has_from_now_on_are_added(folder: SourceCase) -> None:
    run(folder.file)
    folder.grow()
    run(folder.file)

    rows = DeltaTable(folder.folder / "rows").to_pyarrow_table().to_pylist()
    assert {row["note"] is not None for row in rows if row["event_id"] >= 200} == {True}
    assert {row["note"] for row in rows if row["event_id"] < 200} == {None}


def test_columns_are_inferred_where_the_table_declares_none(folder: SourceCase) -> None:
    file = folder.file
    file.write_text(file.read_text().replace("schema: {event_id: long, size: int}, ", ""))
    run(file)

    table = DeltaTable(folder.folder / "rows").to_pyarrow_table()
    assert table.num_rows == 200
    assert table.schema.field("size").type == pa.int64()


def test_dead_letter_of_columns_is_replayed_from_the_json_that_it_holds(folder: SourceCase) -> None:
    run(folder.file)
    letters = folder.dead_letters()
    folder.evolve = "{type_change: rescue}"
    pipeline = Pipeline.from_file(folder.file)

    replay(pipeline, DeadLetterFilter())

    assert letters[0]["payload"] == b'{"event_id":3,"size":1099511627776}'
    assert folder.dead_letters() == []
    rows = DeltaTable(folder.folder / "rows").to_pyarrow_table().to_pylist()
    (found,) = [row for row in rows if row["event_id"] == 3]
    assert (found["size"], found["_rescued"]) == (None, '{"size":1099511627776}')


def test_lag_is_what_the_source_says_and_not_the_distance_of_positions(folder: SourceCase) -> None:
    file = folder.file
    (foreseen,) = plan_run(Pipeline.from_file(file)).tables
    run(file)
    folder.grow()
    (told,) = status(Pipeline.from_file(folder.file)).tables

    assert (foreseen.lag, foreseen.sampled > 0, told.lag) == (200, True, 200)
    assert told.offsets["items"]["files"].next == 8 << SHIFT
