"""`verify` tells places of a source as the source names them, not as the numbers in a log."""

from __future__ import annotations

import json
from pathlib import Path

from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify

FILE = """\
name: shop
sources: {drops: {type: files, path: in, format: json, settle: 1ms}}
tables: {t: {path: t, from: drops, schema: {id: long}}}
"""


def test_restore_that_left_positions_behind_names_the_files_whose_rows_are_missing(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(FILE)
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"id": number}))
        run_inline(Pipeline.from_file(file))
    DeltaTable(tmp_path / "t").restore(2)

    (table,) = verify(Pipeline.from_file(file)).tables

    (found,) = [one for one in table.findings if one.kind == "restore"]
    assert found.text == (
        "drops/0: the table was restored to version 2 and the position left at file 4: "
        "the rows of the events from file 3 up to file 4 are missing"
    )
    assert found.start is not None and found.start > 2**32
