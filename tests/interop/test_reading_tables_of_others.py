"""Tables that Spark wrote, with features of many protocols, as sources: every value is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from support.delta_tables import ids, rows
from support.zoo import ZOO

ONLY_IDS = ("widened", "mapping", "timestamp_ntz")
"""DuckDB does not read the first and reads other names in the second; a time without a zone becomes UTC."""


@pytest.mark.parametrize("start", ["earliest", "{version: 0}"])
@pytest.mark.parametrize("name", sorted(ZOO))
def test_a_copy_holds_every_value_of_the_table(name: str, start: str, zoo: Path, tmp_path: Path) -> None:
    if start != "earliest" and name in ("change_feed", "vectors"):
        start += ", ignore_changes: true"
    file = tmp_path / "copy.yaml"
    file.write_text(
        f"""\
name: copy
sources: {{theirs: {{type: delta, path: {zoo / name}, start: {start}, max_files: 1}}}}
tables: {{ours: {{path: ours, from: theirs}}}}
"""
    )
    pipeline = Pipeline.from_file(file)

    run_inline(pipeline)

    assert verify(pipeline).sound
    if "ignore_changes" in start:
        # A file that an update has rewritten is read whole, so most rows of it are there twice.
        assert set(rows(tmp_path / "ours")) >= set(rows(zoo / name))
    elif name in ONLY_IDS:
        assert ids(tmp_path / "ours") == list(range(20))
    else:
        assert rows(tmp_path / "ours") == rows(zoo / name)
