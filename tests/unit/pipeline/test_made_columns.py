"""Columns that two tables make, of which one feeds the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Problems = Callable[..., list[str]]


def test_a_table_may_not_add_columns_that_the_table_before_it_has_added(problems: Problems) -> None:
    """Each of its rows would be a dead letter."""
    text = """\
name: shop
sources: {a: {type: queue, brokers: here}}
tables:
  one: {path: t, from: a, metadata: true, partition_by: [day(at)]}
  two: {path: u, from: one, metadata: [_topic, _key], partition_by: [day(at)]}
  three: {path: v, from: one, metadata: {as: _OFFSET}}
  four: {path: w, from: one, metadata: [_topic, _offset], drop: [_topic], partition_by: [day(at) as d]}
"""

    others = "Choose other names, `metadata: {_topic: NAME}`, or one column, `metadata: {as: NAME}`"
    partition = "Partition by that, `partition_by: [at_day]`, name another with `as NAME`"
    have, leave = "rows of table 'one' have the", "or leave out what they have:"
    assert problems(text) == [
        f"shop.yaml:5: tables.two.metadata: {have} columns _topic and _key already. {others}, {leave} "
        "`drop: [_topic, _key]`",
        f"shop.yaml:5: tables.two.partition_by: {have} column at_day already. {partition}, {leave} "
        "`drop: [at_day]`",
        f"shop.yaml:6: tables.three.metadata: {have} column _offset already. {others}, {leave} "
        "`drop: [_offset]`",
        f"shop.yaml:7: tables.four.metadata: {have} column _offset already. {others}, {leave} "
        "`drop: [_offset]`",
    ]


@pytest.mark.parametrize(
    "table",
    [
        "metadata: true, schema: {id: long}, evolve: ignore",
        "metadata: true, schema: {id: long}, evolve: rescue",
        "metadata: true, schema: {id: long}, select: [id]",
        "metadata: {as: _metadata}",
        "metadata: {_topic: table_topic}",
        "metadata: [_topic], drop: [_topic]",
        "metadata: [_topic], rename: {_topic: first_topic}",
        "partition_by: [at_day]",
    ],
)
def test_columns_of_the_table_before_may_stay_beside_those_of_its_own(problems: Problems, table: str) -> None:
    one = "one: {path: t, from: a, metadata: true, partition_by: [day(at)]}"
    head = "name: shop\nsources: {a: {type: queue, brokers: here}}\ntables:"

    assert problems(f"{head}\n  {one}\n  two: {{path: u, from: one, {table}}}\n") == []
