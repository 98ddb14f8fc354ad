"""The ledger: a Delta table that is appended to under a fence, and stays small."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from lakefeed.sources.files import discovery
from lakefeed.sources.files import ledger as module
from lakefeed.sources.files.discovery import FoundFiles
from lakefeed.sources.files.finding.listing import LISTED
from lakefeed.sources.files.known import FORGOTTEN, READ, KnownFiles
from lakefeed.sources.files.ledger import (
    Ledger,
    LedgerLocation,
    found,
    with_state,
)


def files(*names: str) -> pa.Table:
    columns = [names, [10] * len(names), pa.array([0] * len(names)).cast(LISTED.field(2).type)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, LISTED, strict=False)]
    return pa.Table.from_arrays([*arrays, pa.nulls(len(names), pa.string())], schema=LISTED)


def test_second_writer_of_a_number_is_refused_and_reads_what_the_first_wrote(tmp_path: Path) -> None:
    location = LedgerLocation(str(tmp_path / "files"), {}, "shop", "drops")
    first, second = Ledger(location), Ledger(location)
    first.create()
    second.load()

    took = first.append(found(files("/a"), first.known.next_number))
    refused = second.append(found(files("/b"), 1))
    again = second.append(found(files("/b"), second.known.next_number))

    assert (took, refused, again) == (True, False, True)
    assert Ledger(location).rows.select(["number", "path"]).to_pylist() == [
        {"number": 1, "path": "/a"},
        {"number": 2, "path": "/b"},
    ]


def test_many_small_files_become_few_and_the_states_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MANY_FILES", 6)
    location = LedgerLocation(str(tmp_path / "files"), {}, "shop", "drops")
    ledger = Ledger(location)
    for number in range(5):
        ledger.append(found(files(f"/{number}"), ledger.known.next_number))
        ledger.append(with_state(ledger.rows.slice(number), READ, rows=[number]))
    before = ledger.rows

    ledger.compact()
    ledger.append(found(files("/more"), ledger.known.next_number))

    assert len(DeltaTable(tmp_path / "files").file_uris()) == 2
    assert ledger.rows.slice(0, 5).equals(before)
    assert Ledger(location).known.next_number == 7


def test_file_of_more_than_4_gb_takes_as_many_numbers_as_its_bytes_need(tmp_path: Path) -> None:
    ledger = Ledger(LedgerLocation(str(tmp_path / "files"), {}, "shop", "drops"))
    large = files("/large", "/next").set_column(1, LISTED.field(1), pa.array([9 * 2**30, 1], pa.int64()))

    ledger.append(found(large, ledger.known.next_number))

    assert ledger.rows["number"].to_pylist() == [1, 4]
    assert ledger.known.next_number == 5


def test_states_that_another_writer_told_meanwhile_are_known_after_an_append(tmp_path: Path) -> None:
    location = LedgerLocation(str(tmp_path / "files"), {}, "shop", "drops")
    first = Ledger(location)
    first.append(found(files("/a"), 1))
    second = Ledger(location)
    first.append(with_state(first.rows, FORGOTTEN))

    second.append(found(files("/b"), 2))

    assert second.rows["state"].to_pylist() == ["forgotten", "waiting"]


def test_rows_of_some_numbers_are_those_that_count_whatever_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", 4)
    monkeypatch.setattr(module, "_PAGES", 2)
    location = LedgerLocation(str(tmp_path / "files"), {}, "shop", "drops")
    ledger = Ledger(location)
    ledger.append(found(files(*(f"/{number}" for number in range(11))), 1))
    for number in (2, 9, 5):
        ledger.append(with_state(ledger.rows_of(np.array([number])), READ, rows=[number]))
    ledger.append(found(files("/11", "/12"), 12))

    for some in ([2, 3], [1, 5, 9, 13], [12], list(range(1, 14))):
        wanted = ledger.rows.filter(pc.is_in(ledger.rows["number"], value_set=pa.array(some)))
        assert ledger.rows_of(np.array(some)).equals(wanted.combine_chunks())
        assert Ledger(location).rows_of(np.array(some)).equals(wanted.combine_chunks())
    assert ledger.rows["state"].to_pylist().count(READ) == 3


def test_paths_are_known_by_the_content_of_their_last_number() -> None:
    known = KnownFiles()
    every = found(files(*(f"/{'long' * 80}/{number}" for number in range(9_000))), 1)
    again = found(files(*every["path"].to_pylist()[:4_000]), 9_001)
    again = again.set_column(2, "size", pa.array([11] * 4_000))

    for first in range(0, 9_000, 700):
        known.add(every.slice(first, 700))
        known.add(again.slice(first, 700))

    assert not known.is_as_known(every)[:4_000].any()
    assert known.is_as_known(every)[4_000:].all() and known.is_as_known(again).all()
    assert known.last_numbers(every).tolist() == [*range(9_001, 13_001), *range(4_001, 9_001)]
    assert known.superseded(every).tolist() == [True] * 4_000 + [False] * 5_000
    assert not known.is_as_known(files("/new")).any()
    known.add(with_state(again, FORGOTTEN))
    assert not known.is_as_known(again).any()


@pytest.mark.parametrize("in_memory", [2, 100])
def test_files_of_a_look_come_in_order_though_most_are_on_the_disk(
    monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(discovery, "_IN_MEMORY", in_memory)
    monkeypatch.setattr(discovery, "_AT_A_TIME", 2)
    names = random.Random(7).sample([f"/{number:02}" for number in range(20)], 20)
    times = pa.array([int(name[1:]) // 3 for name in names]).cast(LISTED.field(2).type)
    listed = files(*names).set_column(2, LISTED.field(2), times)

    look = FoundFiles(listed.slice(first, 3) for first in range(0, 20, 3))

    for _ in range(2):
        parts = list(look.in_order())
        assert pa.concat_tables(parts)["path"].to_pylist() == sorted(names)
        assert max(part.num_rows for part in parts) <= 4
