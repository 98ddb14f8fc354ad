"""Conditions of Spark SQL that say which events delete, and what a table of changes holds in the end."""

from __future__ import annotations

from pathlib import Path

from lakefeed import Pipeline
from lakefeed.testing import check

FILE = """\
name: shop
sources:
  orders: {{type: kafka, brokers: localhost:9092, topics: [orders], format: json}}
tables:
  orders:
    path: lake/orders
    from: orders
    mode: upsert
    keys: id
    sequence_by: [at]
    delete_when: {delete_when}
    truncate_when: op = 't'
    select: [id, at, upper(name) AS name]
    schema: {{id: long, at: long, name: string, op: string}}
tests:
  newer wins:
    events:
      orders:
        - {{json: {{id: 7, at: 0, name: before, op: u}}}}
        - {{json: {{at: 0, op: t}}}}
        - {{json: {{id: 1, at: 1, name: a, op: u}}}}
        - {{json: {{id: 2, at: 1, name: b, op: u}}}}
        - {{json: {{id: 1, at: 3, name: c}}}}
        - {{json: {{id: 1, at: 2, name: x, op: u}}}}
        - {{json: {{id: 2, at: 4, op: d}}}}
        - {{json: {{id: 3, at: 4, op: d}}}}
        - {{json: {{id: 3, at: 3, op: u, name: late}}}}
        - {{json: {{id: null, at: 3, op: u, name: nobody}}}}
        - {{json: {{id: 9, op: u, name: whenever}}}}
    tables:
      orders:
        rows: [{{id: 1, at: 3, name: C}}]
        dead_letters: [{{code: null_key, stage: write}}, {{code: null_sequence, stage: write}}]
"""


def shop(folder: Path, delete_when: str = "op = 'd'") -> Pipeline:
    (folder / "shop.yaml").write_text(FILE.format(delete_when=delete_when))
    return Pipeline.from_file(folder / "shop.yaml")


def test_events_delete_and_truncate_by_conditions_over_their_own_columns(tmp_path: Path) -> None:
    (verdict,) = check(shop(tmp_path))

    assert verdict.passed, verdict


def test_a_condition_that_spark_does_not_understand_is_told_with_its_line(tmp_path: Path) -> None:
    (verdict,) = check(shop(tmp_path, "gone = 'd'"))

    assert "shop.yaml:11: tables.orders.delete_when: " in str(verdict.error)
