"""Which flow feeds which tables of a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.engine.assignment import MAIN, Assignment
from lakefeed.engine.run_events import unwatched
from lakefeed.errors import TableError
from lakefeed.handles.tables import Tables
from lakefeed.sources.generate.source import GenerateClient, GenerateSource

CLIENT = GenerateClient(GenerateSource(), "clicks")


@pytest.fixture
def assignment(tmp_path: Path) -> Assignment:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {clicks: {type: generate, rows: 10}}
tables:
  a: {path: a, from: clicks}
  b: {path: b, from: clicks}
  kinds: {route: "kinds/{event_type}", from: clicks}
flush: {rows: 100}
"""
    )
    return Assignment(Tables(Pipeline.from_file(file)), "clicks", unwatched)


def test_table_is_never_fed_by_two_flows(assignment: Assignment) -> None:
    with assignment.living(MAIN) as tables:
        with pytest.raises(RuntimeError, match="table a would be fed by two flows"), assignment.living(MAIN):
            pass
        side = assignment.main().part(["b"])
        with assignment.living(side.number) as apart:
            assert apart == ["b"]
            with pytest.raises(RuntimeError, match="still lives with its tables"):
                assignment.give_back(side.number)
            with pytest.raises(RuntimeError, match="table b is not at flow 0"):
                assignment.part(MAIN, ["b"])
        assert assignment.give_back(side.number)
        assert assignment.has_news()

    assert tables == ["a", "b", "kinds"]
    assert assignment.held_by(MAIN) == ["a", "b", "kinds"]


def test_flow_that_was_given_a_table_while_it_ended_goes_on(assignment: Assignment) -> None:
    side = assignment.main().part(["b"])
    assert assignment.give_back(side.number)

    assert not assignment.end(MAIN, ["a", "kinds"])
    assert assignment.end(MAIN, ["a", "b", "kinds"])


def test_table_is_not_given_to_a_flow_that_has_ended(assignment: Assignment) -> None:
    side = assignment.main().part(["b"])
    assignment.main().leave()

    assert not assignment.give_back(side.number)
    assert side.tables == ["b"]


def test_tables_more_than_three_batches_behind_are_far(assignment: Assignment) -> None:
    found = assignment.far(
        CLIENT, {"a": {"0": 1000, "1": 500}, "b": {"0": 800, "1": 400}, "kinds": {"0": 699, "1": 500}}
    )

    assert found == {"kinds": 301}


def test_one_table_stays_where_each_is_ahead_in_another_partition(assignment: Assignment) -> None:
    found = assignment.far(CLIENT, {"a": {"0": 1000, "1": 0}, "b": {"0": 0, "1": 1000}})

    assert found == {}


def test_source_is_told_nothing_while_a_table_is_not_known(assignment: Assignment) -> None:
    assignment.record({"a": {"0": 50}, "b": {"0": 70}})

    assert assignment.recorded() == {}


def test_source_is_told_the_lowest_position_of_all_tables_those_of_routes_and_failed_ones_too(
    assignment: Assignment,
) -> None:
    assignment.record({"a": {"0": 50, "1": 9}, "b": {"0": 70}})
    assignment.record(
        {"kinds": {"0": 0, "1": 0}, "kinds/view": {"0": 60, "1": 8}, "kinds/buy": {"0": 40, "1": 8}}
    )
    assignment.failures["kinds"] = TableError("away")

    assert assignment.recorded() == {"0": 40}
