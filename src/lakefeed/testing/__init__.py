"""Pipelines in tests: send events through one, look at its tables, and compare them with what you expect.

    from lakefeed.testing import Sample, assert_rows, run_samples

    def test_a_price_keeps_its_cents(tmp_path):
        landed = run_samples("shop.yaml", {"clicks": [Sample(json={"event_id": 1, "price": 9.9})]}, tmp_path)

        assert_rows(landed.path("clicks"), [{"event_id": 1, "price": "9.90"}])

No service is asked, no JVM is started, and the pipeline's own tables are not touched.
"""

from __future__ import annotations

from lakefeed.pipeline.test_file import Case, ExpectedLetter, ExpectedTable, Sample
from lakefeed.testing.difference import Difference
from lakefeed.testing.landed import Landed, run_samples
from lakefeed.testing.verdict import Verdict, assert_rows, check

__all__ = [
    "Case",
    "Difference",
    "ExpectedLetter",
    "ExpectedTable",
    "Landed",
    "Sample",
    "Verdict",
    "assert_rows",
    "check",
    "run_samples",
]
