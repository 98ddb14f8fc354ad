"""Dead letters of files show the offset that their records have in their files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakefeed.events import ORIGIN
from lakefeed.sources.files.ledger import LEDGER, Ledger, LedgerLocation
from lakefeed.sources.files.letters import in_their_files
from lakefeed.sources.files.offset import file_start


def test_record_behind_4_gb_of_a_file_is_counted_from_its_beginning(tmp_path: Path) -> None:
    location = LedgerLocation(str(tmp_path / "ledger"), {}, "shop", "drops")
    files = [{"number": 1, "size": 20}, {"number": 2, "size": 9 << 30}, {"number": 5, "size": 20}]
    Ledger(location).append(pa.Table.from_pylist([{**one, "state": "read"} for one in files], LEDGER))
    letters = [(1, 10, 20), (2, 7, 9 << 30), (2, (8 << 30) + 7, 9 << 30), (5, 10, 20)]
    rows = [
        {
            "offset": file_start(number) + at,
            "headers": [{"key": "file", "value": b"a.json"}, {"key": "size", "value": str(size).encode()}],
        }
        for number, at, size in letters
    ]

    shown = in_their_files(pa.RecordBatch.from_pylist(rows, ORIGIN), location)

    assert shown.column("offset").to_pylist() == [10, 7, (8 << 30) + 7, 10]
