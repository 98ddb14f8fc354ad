from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed.errors import PipelineFileError
from lakefeed.pipeline.loading.load import load
from lakefeed.pipeline.options.shaping import has_star
from lakefeed.pipeline.table import Table

FILE = """
name: shop
sources:
  clicks: {{type: generate}}
tables:
  clicks:
    path: lake/clicks
    from: clicks
{options}
"""


@pytest.fixture(autouse=True)
def small_connectors() -> None:
    """Leave the real connectors in their place."""


def table(folder: Path, options: str) -> Table:
    return load(file(folder, options)).pipeline.tables["clicks"]


def problems(folder: Path, options: str) -> list[str]:
    with pytest.raises(PipelineFileError) as raised:
        load(file(folder, options))
    return [f"{one.key}: {one.message}" for one in raised.value.problems]


def file(folder: Path, options: str) -> Path:
    written = folder / "shop.yaml"
    written.write_text(FILE.format(options=options))
    return written


def test_a_rule_is_its_condition_or_says_what_happens_otherwise(tmp_path: Path) -> None:
    rules = table(
        tmp_path,
        """
    expect:
      positive: price > 0
      known: {that: country IS NOT NULL, otherwise: warn}
""",
    ).expect

    assert {name: (one.that, one.otherwise) for name, one in rules.items()} == {
        "positive": ("price > 0", "dead_letter"),
        "known": ("country IS NOT NULL", "warn"),
    }


def test_one_item_needs_no_list(tmp_path: Path) -> None:
    assert table(tmp_path, "    select: price * 2 AS double").select == ("price * 2 AS double",)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("    select: []", "tables.clicks.select: expected at least one item, such as '*'"),
        ("    select: ['']", "tables.clicks.select.0: expected an expression of Spark SQL, got nothing"),
        ("    where: '  '", "tables.clicks.where: expected an expression of Spark SQL, got nothing"),
        (
            "    python: enrich",
            "tables.clicks.python: expected `module:function`, such as shop.clean:enrich, got 'enrich'",
        ),
        (
            "    expect: {a: {that: x, otherwise: explode}}",
            "tables.clicks.expect.a.otherwise: "
            "expected 'warn', 'drop', 'dead_letter' or 'fail', got 'explode'",
        ),
        ("    expect: {a: {otherwise: warn}}", "tables.clicks.expect.a.that: required, but missing"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_key(tmp_path: Path, options: str, problem: str) -> None:
    assert problems(tmp_path, options) == [problem]


def test_with_select_the_schema_declares_events_so_partitions_may_name_other_columns(tmp_path: Path) -> None:
    options = """
    schema: {ts: string}
    select: ["cast(ts AS timestamp) AS at"]
    partition_by: [day(at)]
"""

    assert table(tmp_path, options).reshapes


@pytest.mark.parametrize(
    ("item", "grows"),
    [
        ("*", True),
        (" * EXCEPT (debug)", True),
        ("to_json(struct(*)) AS row", True),
        ("meta.*", True),
        ("price * 1.2 AS gross", False),
        ("concat(a, '*') AS starred", False),
        ("(price) * 2 AS twice", False),
    ],
)
def test_a_star_grows_with_the_events_and_a_product_does_not(item: str, grows: bool) -> None:
    assert has_star((item,)) is grows


def test_a_function_has_no_route_and_its_own_column_is_not_declared(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """
    route: lake/{kind}
    python: clean:enrich
    schema: {kind: string, _event: int}
""",
    )

    assert any(
        one.startswith("tables.clicks.python: a table with a `route` has no `python`") for one in found
    )
    assert any(one.startswith("tables.clicks.schema._event: is the name") for one in found)
