"""Conditions of Spark SQL that say which events delete, and what a table of changes holds in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    where: {where}
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
        - {{json: {{id: 8, at: 3, op: u, name: zzz}}}}
    tables:
      orders:
        rows: [{{id: 1, at: 3, name: C}}]
        dead_letters: [{{code: null_key, stage: write}}, {{code: null_sequence, stage: write}}]
"""


def shop(folder: Path, delete_when: str = "op = 'd'", where: str = "name <> 'zzz'") -> Pipeline:
    (folder / "shop.yaml").write_text(FILE.format(delete_when=delete_when, where=where))
    return Pipeline.from_file(folder / "shop.yaml")


def test_a_condition_that_spark_does_not_understand_is_told_with_its_line(tmp_path: Path) -> None:
    (verdict,) = check(shop(tmp_path, "gone = 'd'"))

    assert "shop.yaml:11: tables.orders.delete_when: " in str(verdict.error)


@pytest.mark.parametrize("where", ["name <> 'zzz'", "soundex(name) <> soundex('zzz')"])
def test_events_delete_and_truncate_by_conditions_over_their_own_columns(where: str, tmp_path: Path) -> None:
    # Deletions have no name, so the condition is null for them; the second is for Spark's own operators.
    (verdict,) = check(shop(tmp_path, where=where))

    assert verdict.passed, verdict


TOMBSTONES = """\
name: shop
sources:
  customers: {type: kafka, brokers: localhost:9092, topics: [customers], format: json, key: text}
tables:
  customers:
    path: lake/customers
    from: customers
    mode: upsert
    keys: id
    where: country = 'de'
    expect: {named: name IS NOT NULL}
    partition_by: [country]
    schema: {id: long not null, country: string not null, name: string not null}
  renamed:
    path: lake/renamed
    from: customers
    mode: upsert
    keys: number
    select: [id AS number, name]
    schema: {id: long, name: string}
tests:
  tombstones:
    events:
      customers:
        - {json: {id: 1, country: de, name: a}}
        - {json: {id: 2, country: fr, name: b}}
        - {json: {id: 3, country: de, name: c}}
        - {key: "1"}
    tables:
      customers:
        rows: [{id: 3, country: de, name: c}]
        filtered: 1
      renamed:
        rows: [{number: 1, name: a}, {number: 2, name: b}, {number: 3, name: c}]
        dead_letters: [{code: wrong_type, stage: schema}]
"""


def test_tombstones_of_kafka_pass_conditions_over_columns_that_they_do_not_have(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(TOMBSTONES)

    (verdict,) = check(Pipeline.from_file(tmp_path / "shop.yaml"))

    assert verdict.passed, verdict
