"""A table of the file feeds others, exactly once; without a JVM."""

from __future__ import annotations

from pathlib import Path

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from support.ledger import table_ids

FILE = """\
name: shop
sources: {{events: {{type: generate, rows: {rows}, partitions: 2, bad_ratio: 0.02}}}}
tables:
  gold_like: {{path: gold, from: silver, schema: {{event_id: long}}, evolve: ignore}}
  silver: {{path: silver, from: bronze, schema: {{event_id: long, price: double}}, evolve: ignore}}
  bronze: {{path: bronze, from: events}}
flush: {{rows: 70}}
"""


def write(folder: Path, rows: int = 200, text: str = FILE) -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(text.format(rows=rows))
    return Pipeline.from_file(file)


def test_one_run_brings_rows_along_the_whole_graph(tmp_path: Path) -> None:
    run_inline(write(tmp_path))

    ids = [sorted(table_ids(tmp_path / name)) for name in ("bronze", "silver", "gold")]
    assert len(ids[0]) == 196
    assert ids[0] == ids[1] == ids[2]


def test_each_run_brings_what_is_new_and_repeats_nothing(tmp_path: Path) -> None:
    for rows in (200, 400, 400, 1000):
        run_inline(write(tmp_path, rows))

    ids = [sorted(table_ids(tmp_path / name)) for name in ("bronze", "silver", "gold")]
    assert len(ids[0]) == 980
    assert ids[0] == ids[1] == ids[2]
    assert verify(write(tmp_path, 1000)).sound


def test_lag_is_counted_in_rows(tmp_path: Path) -> None:
    bronze_only = FILE.replace("  silver", "# silver").replace("  gold_like", "# gold")
    run_inline(write(tmp_path))
    run_inline(write(tmp_path, 300, bronze_only))

    found = {table.name: table.lag for table in status(write(tmp_path, 300)).tables}
    assert found == {"bronze": 0, "silver": 98, "gold_like": 0}
