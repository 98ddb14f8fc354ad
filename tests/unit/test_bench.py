"""The benchmark measures what its report says: the shapes of its events, its goals and its verdicts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.columns.column_types import declared_schema
from lakefeed.formats import Format

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    for name in [name for name, module in sys.modules.items() if _is_of_bench(module)]:
        monkeypatch.delitem(sys.modules, name)


def _is_of_bench(module: object) -> bool:
    return str(getattr(module, "__file__", None)).startswith(str(BENCH))


def test_every_workload_is_a_pipeline_that_decodes_its_own_events(tmp_path: Path) -> None:
    from workload import WORKLOADS

    for work in WORKLOADS:
        pipeline = Pipeline.model_validate(work.pipeline("localhost:9092", 1000, tmp_path))
        kind = pipeline.sources["clicks"].format
        assert isinstance(kind, Format)
        decoded = kind.decoder(declared_schema(dict(work.columns))).decode([work.topic.payload(7)])

        assert decoded.rows.num_rows == 1, work.name
        assert decoded.unknown is None, work.name
        assert not any(column.null_count for column in decoded.rows.columns), work.name


def test_events_have_the_size_that_the_report_tells() -> None:
    from shapes import NARROW, WIDE, narrow, wide

    sizes = [len(json.dumps(make(1_234_567), separators=(",", ":"))) for make in (narrow, wide)]

    assert sizes == [pytest.approx(212, abs=5), pytest.approx(2000, abs=100)]
    assert (len(NARROW), len(WIDE)) == (8, 60)


def test_report_says_what_was_not_reached() -> None:
    from figure import Figure, as_json, table

    figures = [
        Figure("narrow", 300_000, "rows/s", 2.5, "plain PySpark", "at least 3 times", reached=False),
        Figure("wide", 61.25, "MB"),
    ]

    assert table("throughput", figures).splitlines() == [
        "",
        "throughput",
        "what    measured        ratio                 goal",
        "narrow  300,000 rows/s  2.50 x plain PySpark  at least 3 times  NOT reached",
        "wide    61.2 MB",
    ]
    assert json.loads(as_json({"throughput": figures}))["throughput"][0]["reached"] is False


def test_debezium_is_compared_by_rate_and_by_cpu_of_a_change() -> None:
    from debezium import compared

    theirs = {
        "all": {"events": 500_000, "wall": 10.0, "cpu": 20.0},
        "second_half": {"events": 250_000, "wall": 4.0, "cpu": 5.0},
    }

    figures = list(compared(theirs, {"wall": 4.0, "cpu": 2.0}, 500_000))

    assert [(one.value, one.unit, one.ratio) for one in figures] == [
        (pytest.approx(50_000), "rows", pytest.approx(2.5)),
        (pytest.approx(40), "us CPU", pytest.approx(10)),
        (pytest.approx(62_500), "rows", pytest.approx(2)),
        (pytest.approx(20), "us CPU", pytest.approx(5)),
    ]


@pytest.mark.parametrize("case", ["upsert", "deduplicate", "history", "many-truncate", "deleted"])
def test_memory_is_measured_in_every_mode(case: str) -> None:
    import memory

    found = memory.ours(case, 0.0001)

    assert 0 < found["before_mb"] <= found["peak_mb"]
