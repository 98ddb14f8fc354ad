"""The batches that Spark has read, as tables take them: without Spark, which only writes them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefeed import DataLoss, Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import SourceError
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.sources.spark.query import SourceQuery
from lakefeed.sources.spark.source import SparkSource
from lakefeed.sources.spark.spool import Spool, words
from support.ledger import table_ids
from support.source_contract import SourceCase, SourceContract

BATCH = 50


def fill(folder: Path, count: int) -> None:
    """What Spark leaves of that many rows: a batch for each 50, in two files; every tenth `size` is large."""
    spool = Spool(folder)
    spool.begin()
    for number in range(count // BATCH):
        ids = range(number * BATCH, number * BATCH + BATCH)
        rows = pa.table({"event_id": list(ids), "size": [2**40 if one % 10 == 3 else one for one in ids]})

        def write(to: str, rows: pa.Table = rows) -> None:
            Path(to).mkdir()
            pq.write_table(rows.slice(0, 30), f"{to}/part-0.parquet")
            pq.write_table(rows.slice(30), f"{to}/part-1.parquet")

        spool.put(number, write)


class TestSpark(SourceContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> SourceCase:
        def options(count: int) -> str:
            fill(tmp_path / ".lakefeed" / "spark" / case.pipeline / case.source, count)
            return "format: rate"

        case = SourceCase("spark", tmp_path, options, "event_id: long, size: int", "ignore")
        return case


def pipeline(folder: Path, options: str = "") -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{items: {{type: spark, format: rate{options}}}}}
tables: {{rows: {{path: rows, from: items}}}}
flush: {{rows: 40}}
"""
    )
    return Pipeline.from_file(file)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / ".lakefeed" / "spark" / "shop" / "items"


def test_a_batch_that_spark_runs_again_is_not_written_again(spool: Path, tmp_path: Path) -> None:
    fill(spool, 100)
    fill(spool, 150)
    run_inline(pipeline(tmp_path))

    assert sorted(table_ids(tmp_path / "rows")) == list(range(150))


def test_a_lost_checkpoint_is_noticed_and_the_ways_on_are_told(spool: Path, tmp_path: Path) -> None:
    fill(spool, 100)
    run_inline(pipeline(tmp_path))
    shutil.rmtree(spool)

    with pytest.raises(DataLoss, match=r"checkpoint at .* is gone since the table was[^§]*drop the table"):
        run_inline(pipeline(tmp_path))

    fill(spool, 200)
    with pytest.raises(DataLoss, match=r"checkpoint at .* is another one since the table"):
        run_inline(pipeline(tmp_path))
    assert sorted(table_ids(tmp_path / "rows")) == list(range(100))


def test_batches_that_every_table_has_are_deleted_after_a_while(spool: Path, tmp_path: Path) -> None:
    fill(spool, 200)
    run_inline(pipeline(tmp_path, ", retain: 1ms"))
    left = sorted(path.name for path in spool.glob("batches/*/*.json"))
    run_inline(pipeline(tmp_path, ", retain: 1ms"))

    assert left == ["000000000003.json"]
    assert len(list(spool.glob("batches/*/*.parquet"))) == 0
    assert len(list(spool.glob("batches/*/*/*.parquet"))) == 2
    assert verify(pipeline(tmp_path)).sound


def test_a_batch_without_its_list_of_files_is_none(spool: Path, tmp_path: Path) -> None:
    fill(spool, 150)
    (newest,) = spool.glob("batches/*/000000000002.json")
    newest.unlink()
    run_inline(pipeline(tmp_path))

    assert sorted(table_ids(tmp_path / "rows")) == list(range(100))
    fill(spool, 150)
    assert status(pipeline(tmp_path)).tables[0].lag == 50


def test_an_offset_is_told_as_batch_and_row() -> None:
    spool = Spool(Path("nowhere"))

    assert words(spool.end.number) == "batch 0"


def rows_of(*ids: int) -> Callable[[str], None]:
    def write(to: str) -> None:
        Path(to).mkdir()
        pq.write_table(pa.table({"event_id": list(ids)}), f"{to}/part-0.parquet")

    return write


def test_a_batch_that_spark_plans_anew_with_other_rows_is_refused(spool: Path) -> None:
    kept = Spool(spool)
    kept.begin()
    offsets = kept.checkpoint / "offsets"
    offsets.mkdir()
    for number in range(3):
        (offsets / str(number)).write_text(f"up to {number}")
        kept.put(number, rows_of(number))
        kept.look()
    kept.put(2, rows_of(2))
    kept.forget(2, 0)
    (offsets / "2").write_text("up to 9")

    for number in (0, 2):
        with pytest.raises(SourceError, match=f"Spark runs batch {number} with other rows than it had"):
            kept.put(number, rows_of(8, 9))


def test_a_run_that_ends_by_itself_does_not_wait_for_tables_to_take_batches(spool: Path) -> None:
    kept = Spool(spool)
    kept.begin()
    kept.put(0, rows_of(1))
    kept.look()
    query = SourceQuery(SparkSource(format="rate", buffer=1), "source items", kept, lambda: None)  # type: ignore[arg-type,return-value]
    query._draining = True
    frame: Any = SimpleNamespace(write=SimpleNamespace(mode=lambda _: SimpleNamespace(parquet=rows_of(2))))
    keeping = threading.Thread(target=query._keep, args=(frame, 1), daemon=True)
    keeping.start()
    keeping.join(120)

    assert not keeping.is_alive()
    kept.look()
    assert sorted(kept.batches) == [0, 1]
