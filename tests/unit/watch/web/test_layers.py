from __future__ import annotations

from lakefeed import Pipeline
from lakefeed.engine.run_events import (
    Committed,
    InputsSeen,
    Refreshed,
    RefreshFailed,
    RowsShaped,
    SourceSeen,
    Started,
)
from lakefeed.watch.health import reasons
from lakefeed.watch.metrics import Metrics
from lakefeed.watch.state import RunState
from lakefeed.watch.web.drawing import drawings
from lakefeed.watch.web.layers import feeders
from lakefeed.watch.web.page import StatusPage
from lakefeed.watch.web.status import status_of


def medallion() -> Pipeline:
    """A source and a table of the same name, a table of a table, and two queries."""
    return Pipeline.model_validate(
        {
            "name": "shop",
            "sources": {"clicks": {"type": "generate"}},
            "tables": {
                "top": {"path": "/lake/top", "query": "SELECT * FROM brands LIMIT 1"},
                "clicks": {"path": "/lake/clicks", "from": "clicks"},
                "silver": {"path": "/lake/silver", "from": "bronze"},
                "bronze": {"path": "/lake/bronze", "from": "clicks"},
                "brands": {
                    "path": "/lake/brands",
                    "query": "SELECT * FROM silver JOIN clicks",
                    "refresh": "5m",
                },
            },
            "http": {"listen": "127.0.0.1:0"},
        }
    )


def told() -> tuple[RunState, Metrics]:
    """All is well, but the last query fails, and silver has rows that do not meet a rule."""
    state = RunState(medallion())
    metrics = Metrics(state)
    events = [
        Started(),
        SourceSeen("clicks", {"0": 10}),
        SourceSeen("bronze", {"0": 10}),
        *(_committed(name, source) for name, source in (("bronze", "clicks"), ("silver", "bronze"))),
        RowsShaped("silver", "bronze", 2, {"positive": {"passed": 5, "dropped": 2}, "known": {"passed": 7}}),
        RowsShaped("silver", "bronze", 1, {"positive": {"passed": 1, "dropped": 1}, "known": {"passed": 2}}),
        InputsSeen("brands"),
        _committed("brands", "query", {"silver": 1, "clicks": 4}),
        Refreshed("brands", 1, 7, 2.5, {"silver": 1, "clicks": 4}),
        InputsSeen("brands", {"silver": 1, "clicks": 4}, {"silver": 2, "clicks": 0}),
        InputsSeen("top"),
        RefreshFailed("top", "table top: the query failed: [DIVIDE_BY_ZERO] Division by zero."),
    ]
    for event in events:
        state.watch(event)
        metrics.watch(event)
    return state, metrics


def test_each_table_stands_behind_what_feeds_it() -> None:
    state, _ = told()
    view = state.view()

    wide, narrow = drawings(view)

    columns: dict[float, list[str]] = {}
    for box in wide.boxes[:-1]:
        columns.setdefault(box.x, []).append(box.title.split(":")[0])
    assert [sorted(columns[x]) for x in sorted(columns)] == [
        ["source clicks (generate)"],
        ["table bronze", "table clicks"],
        ["table silver"],
        ["table brands"],
        ["table top"],
    ]
    assert feeders(view)["brands"] == [("table", "silver"), ("table", "clicks")]
    assert feeders(view)["clicks"] == [("source", "clicks")]
    assert len(wide.edges) == len(narrow.edges) == 6
    assert sum("query" in edge.cls for edge in wide.edges) == 3
    assert all(box.x + box.width <= narrow.width for box in narrow.boxes)


def test_a_box_tells_lag_rules_and_what_a_query_misses() -> None:
    state, _ = told()

    said = {
        box.title.split(":")[0]: " ".join(text.said for text in box.texts if text.cls == "said")
        for box in drawings(state.view())[0].boxes
    }

    assert said["table silver"] == "7 rows positive: 3 not met"
    assert said["table brands"] == "7 rows 2 versions behind"
    assert said["table top"] == "not yet"


def test_a_failing_query_makes_the_run_not_ready_until_it_works() -> None:
    state, _ = told()
    pipeline = medallion()

    assert reasons(state.view(), pipeline) == [
        "table top: the query failed: [DIVIDE_BY_ZERO] Division by zero"
    ]
    state.watch(Refreshed("top", 1, 1, 0.5, {"brands": 1}))

    assert reasons(state.view(), pipeline) == []


def test_metrics_count_refreshes_and_expectations() -> None:
    _, metrics = told()

    lines = metrics.text().decode().splitlines()

    rules = 'lakefeed_expectation_rows_total{pipeline="shop",'
    for line in (
        'lakefeed_refreshes_total{pipeline="shop",result="done",table="brands"} 1.0',
        'lakefeed_refreshes_total{pipeline="shop",result="failed",table="top"} 1.0',
        'lakefeed_refresh_seconds_sum{pipeline="shop",table="brands"} 2.5',
        'lakefeed_query_behind_versions{pipeline="shop",table="brands"} 2.0',
        f'{rules}result="dropped",rule="positive",table="silver"}} 3.0',
        f'{rules}result="passed",rule="known",table="silver"}} 9.0',
        'lakefeed_filtered_rows_total{pipeline="shop",source="bronze",table="silver"} 3.0',
    ):
        assert line in lines


def test_the_status_of_a_run_has_queries_and_expectations() -> None:
    state, _ = told()

    tables = {one.name: one for one in status_of(state.view()).tables}

    brands = tables["brands"].query
    assert brands is not None and brands.behind == 2
    assert (brands.inputs["silver"].version, brands.inputs["silver"].behind) == (1, 2)
    silver = tables["silver"].shaped
    assert silver is not None and silver.filtered == 3
    assert silver.expectations == {"positive": {"passed": 6, "dropped": 3}, "known": {"passed": 9}}
    assert tables["top"].error == "table top: the query failed: [DIVIDE_BY_ZERO] Division by zero."


def test_what_queries_have_made_is_no_part_of_the_rows_that_came_in() -> None:
    state, _ = told()

    assert state.view().rows == 14


def test_the_page_opens_to_the_versions_and_the_rules() -> None:
    state, _ = told()

    page = StatusPage(medallion(), "1").whole(state.view(), "nonce")

    assert "Expectations in this run" in page and "<td>positive</td>" in page
    assert "a query of silver and clicks" in page
    assert "its rows stay as they are; it is tried again after 1m" in page.lower()


def _committed(table: str, source: str, inputs: dict[str, int] | None = None) -> Committed:
    return Committed(
        table,
        source,
        1,
        rows=7,
        files=1,
        size=100,
        dead_letters=0,
        seconds=0.1,
        retries=0,
        replaces=bool(inputs),
        inputs=inputs or {},
    )
