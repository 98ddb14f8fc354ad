"""`python` on Spark's workers: they have not the folder of the pipeline file, and outlive a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from support.ledger import assert_each_once, dead_letters

PIPELINE = """\
name: shop
sources: {clicks: {type: generate, rows: 1000, partitions: 2}}
tables:
  clicks:
    path: clicks
    from: clicks
    schema: {event_id: long, version: int}
    evolve: ignore
    python: shop.clean:enrich
"""
CODE = """\
from shop.words import VERSION
import pyarrow as pa

def enrich(batch):
    numbers = batch["event_id"].to_pylist()
    if 77 in numbers:
        raise ArithmeticError("no 77")
    return batch.set_column(1, "version", pa.array([VERSION] * len(numbers), pa.int32()))
"""


@pytest.mark.usefixtures("spark")
def test_workers_get_the_function_with_the_plan_and_a_changed_one_with_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(PIPELINE)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "clean.py").write_text(CODE)
    (tmp_path / "shop" / "words.py").write_text("VERSION = 1\n")
    Pipeline.from_file(file).run(once=True)

    (tmp_path / "shop" / "words.py").write_text("VERSION = 2\n")
    Pipeline.from_file(file, ["sources.clicks.rows=2000"]).run(once=True)

    rows = DeltaTable(tmp_path / "clicks").to_pyarrow_table().to_pylist()
    (letter,) = dead_letters(tmp_path / "shop_dead_letters")
    assert (letter["stage"], letter["code"], letter["error"]) == (
        "python",
        "ArithmeticError",
        "no 77 (clean.py, line 7)",
    )
    assert_each_once(range(2000), [row["event_id"] for row in rows], [77])
    assert {row["version"] for row in rows if row["event_id"] < 1000} == {1}
    assert {row["version"] for row in rows if row["event_id"] >= 1000} == {2}
