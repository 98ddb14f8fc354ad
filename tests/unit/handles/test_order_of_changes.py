"""Changes are applied in the order of their source, whatever names its files have."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.tables.write.deduplicate import DedupeRules, DeduplicateMode
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
from support.keyed_table import KeyedTable

FILE = """\
name: shop
sources:
  drops: {{type: files, path: drops, settle: 1ms, format: {format}, max_files: {files}}}
tables:
  present: {{path: present, from: drops, mode: upsert, keys: id}}
  {other}
"""
FIRST = "first: {path: first, from: drops, mode: deduplicate, keys: id}"
PAST = "past: {path: past, from: drops, mode: history, keys: id}"
COLUMNS = [("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string())]


def run(folder: Path, drops: dict[str, list[dict[str, Any]]], *, files: int = 1000, **more: str) -> None:
    """Read some files, the first one written first, so many in a batch."""
    (folder / "drops").mkdir()
    for number, (name, events) in enumerate(drops.items()):
        path = folder / "drops" / name
        path.write_text("\n".join(map(json.dumps, events)) + "\n")
        os.utime(path, (1000 + number, 1000 + number))
    options = {"format": "json", "other": FIRST} | more
    (folder / "shop.yaml").write_text(FILE.format(files=files, **options))
    run_inline(Pipeline.from_file(folder / "shop.yaml"))


def rows(table: Path | str) -> list[dict[str, Any]]:
    scan = pa.RecordBatchReader.from_stream(DeltaTable(str(table)).scan())
    found: list[dict[str, Any]] = scan.read_all().to_pylist()
    return found


@pytest.mark.parametrize("files", [1, 1000])
def test_of_two_files_the_later_one_wins_whatever_their_names(files: int, tmp_path: Path) -> None:
    drops = {name: [{"id": 1, "v": name}] for name in ("orders-9.json", "orders-10.json")}

    run(tmp_path, drops, files=files)

    assert rows(tmp_path / "present") == [{"id": 1, "v": "orders-10.json"}]
    assert rows(tmp_path / "first") == [{"id": 1, "v": "orders-9.json"}]


@pytest.mark.parametrize("files", [1, 1000])
def test_a_row_that_comes_again_at_the_same_sequence_is_there_whatever_file_has_it(
    files: int, tmp_path: Path
) -> None:
    source = {"connector": "oracle", "scn": "7", "commit_scn": "7"}
    names = {"id": 1, "name": "a"}
    events = [
        {"op": "c", "ts_ms": 1, "source": source, "after": names},
        {"op": "d", "ts_ms": 1, "source": source, "before": names},
        {"op": "c", "ts_ms": 1, "source": source, "after": names | {"name": "again"}},
    ]
    drops = {f"changes-{number + 8}.json": [event] for number, event in enumerate(events)}

    run(tmp_path, drops, files=files, format="debezium", other=PAST)

    for table in ("present", "past"):
        (row,) = rows(tmp_path / table)
        assert row["name"] == "again"


def transaction(count: int, **change: Any) -> list[dict[str, Any]]:
    """Changes of one row in one transaction, as Postgres has them: one offset, and an ordinal for each."""
    return [{"id": 1, "ordinal": number, "v": f"change {number}", **change} for number in range(count)]


def test_the_last_change_of_a_transaction_wins_at_one_sequence(tmp_path: Path) -> None:
    table = KeyedTable(tmp_path / "rows", pa.schema(COLUMNS), KeyRules(("id",), ("seq",)))

    table.apply(*transaction(12, seq=7, offset=1000))
    assert [row["v"] for row in table.rows()] == ["change 11"]

    early, late = {"offset": 2000, "ordinal": 5}, {"offset": 3000, "ordinal": 0}
    table.apply({"id": 1, "seq": 8, "v": "late", **late}, {"id": 1, "seq": 8, "v": "early", **early})
    assert [row["v"] for row in table.rows()] == ["late"]


def test_the_last_change_of_a_transaction_is_the_present_of_a_history(tmp_path: Path) -> None:
    ends = [("valid_from", pa.int64()), ("valid_to", pa.int64())]
    rules = HistoryRules(("id",), ("seq",))
    table = KeyedTable(tmp_path / "rows", pa.schema([*COLUMNS, *ends]), rules, modes=HistoryMode)

    table.apply(*transaction(12, seq=7, offset=1000))

    assert [(row["v"], row["valid_to"]) for row in table.rows()] == [("change 11", None)]


def test_the_first_change_of_a_transaction_stays_where_keys_come_once(tmp_path: Path) -> None:
    table = KeyedTable(tmp_path / "rows", pa.schema(COLUMNS), KeyRules(("id",)))
    table.mode = DeduplicateMode(DedupeRules(("id",)), table.target)

    table.apply(*reversed(transaction(12, offset=1000)))

    assert [row["v"] for row in table.rows()] == ["change 0"]


def test_a_change_wins_over_the_row_of_a_snapshot_at_one_sequence(tmp_path: Path) -> None:
    table = KeyedTable(tmp_path / "rows", pa.schema(COLUMNS), KeyRules(("id",), ("seq",)))
    change = {"id": 1, "seq": 7, "v": "change", "from": "public.orders", "offset": 1000}
    read = {"id": 1, "seq": 7, "v": "read", "from": "public.orders:rows", "offset": 2**61, "ordinal": -9}

    table.apply(change, read)

    assert [row["v"] for row in table.rows()] == ["change"]
