"""The ledger: a Delta table that is appended to under a fence, and stays small."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed.sources.files import ledger as module
from lakefeed.sources.files.finding.listing import LISTED
from lakefeed.sources.files.ledger import (
    FORGOTTEN,
    READ,
    Ledger,
    LedgerLocation,
    found,
    next_number,
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

    took = first.append(found(files("/a"), next_number(first.rows)))
    refused = second.append(found(files("/b"), 1))
    again = second.append(found(files("/b"), next_number(second.rows)))

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
        ledger.append(found(files(f"/{number}"), next_number(ledger.rows)))
        ledger.append(with_state(ledger.rows.slice(number), READ, rows=[number]))
    before = ledger.rows

    ledger.compact()
    ledger.append(found(files("/more"), next_number(ledger.rows)))

    assert len(DeltaTable(tmp_path / "files").file_uris()) == 2
    assert ledger.rows.slice(0, 5).equals(before)
    assert next_number(Ledger(location).rows) == 7


def test_file_of_more_than_4_gb_takes_as_many_numbers_as_its_bytes_need(tmp_path: Path) -> None:
    ledger = Ledger(LedgerLocation(str(tmp_path / "files"), {}, "shop", "drops"))
    large = files("/large", "/next").set_column(1, LISTED.field(1), pa.array([9 * 2**30, 1], pa.int64()))

    ledger.append(found(large, next_number(ledger.rows)))

    assert ledger.rows["number"].to_pylist() == [1, 4]
    assert next_number(ledger.rows) == 5


def test_states_that_another_writer_told_meanwhile_are_known_after_an_append(tmp_path: Path) -> None:
    location = LedgerLocation(str(tmp_path / "files"), {}, "shop", "drops")
    first = Ledger(location)
    first.append(found(files("/a"), 1))
    second = Ledger(location)
    first.append(with_state(first.rows, FORGOTTEN))

    second.append(found(files("/b"), 2))

    assert second.rows["state"].to_pylist() == ["forgotten", "waiting"]
