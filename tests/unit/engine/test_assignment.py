"""Which flow feeds which tables of a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.engine.assignment import MAIN, Assignments
from lakefeed.engine.run_events import unwatched
from lakefeed.errors import TableError
from lakefeed.handles.table_plan import TableId
from lakefeed.handles.tables import Tables
from lakefeed.sources.generate.source import GenerateClient, GenerateSource

CLIENT = GenerateClient(GenerateSource(), "clicks")


@pytest.fixture
def assignments(tmp_path: Path) -> Assignments:
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
    return Assignments(Tables(Pipeline.from_file(file)), "clicks", unwatched)


def test_table_is_never_fed_by_two_flows(assignments: Assignments) -> None:
    with assignments.feeding(MAIN) as tables:
        with (
            pytest.raises(RuntimeError, match="table a would be fed by two flows"),
            assignments.feeding(MAIN),
        ):
            pass
        side = assignments.main().part(["b"])
        with assignments.feeding(side.number) as apart:
            assert apart == ["b"]
            with pytest.raises(RuntimeError, match="still feeds its tables"):
                assignments.give_back(side.number)
            with pytest.raises(RuntimeError, match="table b is not at flow 0"):
                assignments.part(MAIN, ["b"])
        assert assignments.give_back(side.number)
        assert assignments.has_news()

    assert tables == ["a", "b", "kinds"]
    assert assignments.held_by(MAIN) == ["a", "b", "kinds"]


def test_flow_that_was_given_a_table_while_it_ended_goes_on(assignments: Assignments) -> None:
    side = assignments.main().part(["b"])
    assert assignments.give_back(side.number)

    assert not assignments.end(MAIN, ["a", "kinds"])
    assert assignments.end(MAIN, ["a", "b", "kinds"])


def test_table_is_not_given_to_a_flow_that_has_ended(assignments: Assignments) -> None:
    side = assignments.main().part(["b"])
    assignments.main().leave()

    assert not assignments.give_back(side.number)
    assert side.tables == ["b"]


def test_tables_more_than_three_batches_behind_are_far(assignments: Assignments) -> None:
    found = assignments.far(
        CLIENT, {"a": {"0": 1000, "1": 500}, "b": {"0": 800, "1": 400}, "kinds": {"0": 699, "1": 500}}
    )

    assert found == {"kinds": 301}


def test_one_table_stays_where_each_is_ahead_in_another_partition(assignments: Assignments) -> None:
    found = assignments.far(CLIENT, {"a": {"0": 1000, "1": 0}, "b": {"0": 0, "1": 1000}})

    assert found == {}


def test_source_is_told_nothing_while_a_table_is_not_known(assignments: Assignments) -> None:
    assignments.record({TableId("a"): {"0": 50}, TableId("b"): {"0": 70}})

    assert assignments.recorded() == {}


def test_source_is_told_the_lowest_position_of_all_tables_those_of_routes_and_failed_ones_too(
    assignments: Assignments,
) -> None:
    assignments.record({TableId("a"): {"0": 50, "1": 9}, TableId("b"): {"0": 70}})
    assignments.record(
        {
            TableId("kinds"): {"0": 0, "1": 0},
            TableId("kinds", ("view",)): {"0": 60, "1": 8},
            TableId("kinds", ("buy",)): {"0": 40, "1": 8},
        }
    )
    assignments.failures["kinds"] = TableError("away")

    assert assignments.recorded() == {"0": 40}


def test_flow_that_keeps_its_table_never_gives_it_back(assignments: Assignments) -> None:
    assignments.main().is_over(CLIENT, {"0": 10}, {"0": 10})
    side = assignments.main().part(["b"])
    side.batches = 1
    assert side.is_over(CLIENT, {"0": 10}, {"0": 10})

    side.keep(True)

    assert side.keeps
    assert not side.is_over(CLIENT, {"0": 10}, {"0": 10})
    side.keep(False)
    assert side.is_over(CLIENT, {"0": 10}, {"0": 10})


def test_main_flow_keeps_nothing_as_there_is_no_other_to_give_it_to(assignments: Assignments) -> None:
    main = assignments.main()

    main.keep(True)

    assert not main.keeps


def test_flows_that_keep_their_tables_leave_room_for_tables_that_are_behind(assignments: Assignments) -> None:
    for name in ("b", "kinds"):
        assignments.main().part([name]).keep(True)
    for _ in range(3):
        assignments.part(MAIN, [])
    behind = {"a": {"0": 0}, "b": {"0": 10_000}}
    assert assignments.far(CLIENT, behind) == {}

    assignments.end(4)

    assert set(assignments.far(CLIENT, behind)) == {"a"}
