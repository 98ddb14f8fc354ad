"""The tests of a pipeline: which pass, which fail, and what a user reads about it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from lakefeed import Pipeline, PipelineFileError, TableError
from lakefeed.pipeline.loading.load import load
from lakefeed.pipeline.secrets import masked
from lakefeed.testing import Sample, Verdict, assert_rows, check, run_samples

SHOP = """
    name: shop
    sources:
      clicks: {type: kafka, brokers: "localhost:9", topics: [clicks], format: json}
    tables:
      clicks:
        path: lake/clicks
        from: clicks
        metadata: true
        partition_by: [day(event_time)]
        schema:
          event_id: long not null
          event_time: timestamp
          price: decimal(10,2)
"""


@pytest.fixture
def verdicts(pipeline_file: Callable[[str], Path]) -> Callable[[str], list[Verdict]]:
    """Runs the tests that are added to the shop's pipeline."""

    def run(tests: str, pipeline: str = SHOP) -> list[Verdict]:
        return list(check(load(pipeline_file(pipeline + tests)).pipeline))

    return run


def told(verdict: Verdict) -> list[str]:
    return [str(difference) for difference in verdict.differences]


def test_rows_and_dead_letters_that_are_expected_pass(verdicts: Callable[[str], list[Verdict]]) -> None:
    tests = """
    tests:
      everything at once:
        events:
          clicks:
            - json: {event_id: 1, event_time: "2026-11-15T10:00:00Z", price: 9.90}
              key: user-7
              headers: {trace: a1, empty: ~}
              timestamp: 2026-11-15T10:00:01Z
              partition: 3
            - text: '{"event_id": 2'
            - hex: 00ff
            - base64: e30=
            - key: {hex: ff}
            - {json: {event_id: 3, price: cheap}, topic: others}
        tables:
          clicks:
            rows:
              - event_id: 1
                price: 9.90
                event_time: 2026-11-15T12:00:00+02:00
                event_time_day: 2026-11-15
                _topic: clicks
                _partition: 3
                _offset: 0
                _timestamp: 2026-11-15T10:00:01Z
                _key: user-7
                _headers: [{key: trace, value: a1}, {key: empty, value: null}]
            dead_letters:
              - {code: bad_json, stage: decode}
              - {code: not_utf8}
              - {code: missing_value, error: event_id}
              - {code: null_payload}
              - {code: bad_decimal, stage: schema, error: expected decimal}
    """

    (verdict,) = verdicts(tests)

    assert told(verdict) == []
    assert verdict.passed


def test_every_difference_names_the_row_the_column_and_both_values(
    verdicts: Callable[[str], list[Verdict]],
) -> None:
    tests = """
    tests:
      wrong in many ways:
        events:
          clicks:
            - json: {event_id: 1, price: 9.90, meta: {ip: a, tags: [x, y]}}
            - json: {event_id: 2, price: 1.5}
            - json: {event_id: 3, price: cheap}
        tables:
          clicks:
            rows:
              - {event_id: 1, price: 9.99, prcie: 1, meta: {tags: [x]}}
              - {event_id: 2, price: expensive}
              - {event_id: 7, price: 7}
            dead_letters: [{code: bad_json}, {code: bad_csv}]
    """

    (verdict,) = verdicts(tests)

    assert told(verdict) == [
        "row 1 differs: price: expected 9.99, got 9.90",
        "row 1 differs: prcie: expected 1, got no such column, did you mean 'price'?",
        'row 1 differs: meta: expected {"tags": ["x"]}, got {"tags": ["x", "y"]}',
        'row 2 differs: price: expected "expensive" (is no decimal(10,2)), got 1.50',
        "row 3 is missing: event_id: expected 7",
        "row 3 is missing: price: expected 7.00",
        'dead letter 1 is missing: code: expected "bad_json"',
        'dead letter 2 is missing: code: expected "bad_csv"',
        'unexpected dead letter: code: expected no such row, got "bad_decimal"',
        'unexpected dead letter: error: expected no such row, got "price: expected decimal(10,2), got '
        '\\"cheap\\""',
        'unexpected dead letter: payload: expected no such row, got "{\\"event_id\\": 3, \\"price\\": '
        '\\"cheap\\"}"',
    ]


def test_row_that_nobody_expects_and_a_table_left_out_of_a_test(
    verdicts: Callable[[str, str], list[Verdict]],
) -> None:
    pipeline = """
    name: shop
    sources: {clicks: {type: generate}}
    tables:
      one: {path: one, from: clicks}
      two: {path: two, from: clicks}
    """
    tests = """
    tests:
      one row too many:
        events: {clicks: [{json: {a: 1}}, {json: {a: 2, b: null}}]}
        tables: {one: {rows: [{a: 1}]}}
    """

    (verdict,) = verdicts(tests, pipeline)

    assert told(verdict) == ["unexpected row: a: expected no such row, got 2"]


def test_rows_that_fit_several_expectations_are_paired_so_that_all_fit(
    verdicts: Callable[[str], list[Verdict]],
) -> None:
    tests = """
    tests:
      the wide one first:
        events: {clicks: [{json: {event_id: 1, price: 1}}, {json: {event_id: 2, price: 1}}]}
        tables: {clicks: {rows: [{price: 1}, {event_id: 1}]}}
    """

    assert [verdict.passed for verdict in verdicts(tests)] == [True]


def test_run_that_fails_is_a_failed_test_with_the_words_of_the_error(
    verdicts: Callable[[str, str], list[Verdict]],
) -> None:
    pipeline = """
    name: shop
    sources: {clicks: {type: generate}}
    tables: {clicks: {path: lake/clicks, from: clicks}}
    """
    tests = """
    tests:
      nothing to infer from:
        events: {clicks: [{json: {}}]}
        tables: {clicks: {rows: []}}
    """

    (verdict,) = verdicts(tests, pipeline)

    assert not verdict.passed
    assert verdict.error and "no column has a value in 1 event," in verdict.error


def test_nothing_of_the_real_pipeline_is_touched(
    verdicts: Callable[[str], list[Verdict]], tmp_path: Path
) -> None:
    tests = """
    tests:
      one row:
        events: {clicks: [{json: {event_id: 1}}]}
        tables: {clicks: {rows: [{event_id: 1}]}}
    """

    assert [verdict.passed for verdict in verdicts(tests)] == [True]

    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipeline.yaml"]


def test_mistakes_in_tests_are_told_with_their_lines(pipeline_file: Callable[[str], Path]) -> None:
    file = pipeline_file(
        SHOP
        + """
    tests:
      wrong:
        events:
          click: [{json: {}}]
          clicks: [{json: {}, text: x}, {hex: xyz}, {partition: -1}, {paylod: 1}]
        tables:
          clikcs: {}
          clicks: {dead_letters: [{}]}
      empty: {events: {clicks: []}}
    """
    )

    with pytest.raises(PipelineFileError) as raised:
        load(file)

    assert [line.partition(": tests.")[2] for line in str(raised.value).splitlines()] == [
        "wrong.events.click: unknown source 'click', did you mean 'clicks'?",
        "wrong.events.clicks.0: an event has one payload: give text or json",
        "wrong.events.clicks.1: expected hex, got 'xyz'",
        "wrong.events.clicks.2.partition: expected a number of at least 0, got -1",
        "wrong.events.clicks.3.paylod: unknown key; known are json, text, base64, hex, key, headers, "
        "timestamp, topic and partition",
        "wrong.tables.clikcs: unknown table 'clikcs', did you mean 'clicks'?",
        "wrong.tables.clicks.dead_letters.0: give code, stage or error",
        "empty.tables: required, but missing",
    ]


def test_sample_that_looks_like_a_secret_is_no_secret(pipeline_file: Callable[[str], Path]) -> None:
    file = pipeline_file(
        SHOP
        + """
    tests:
      a login:
        events: {clicks: [{json: {event_id: 1, password: canary}}]}
        tables: {clicks: {rows: [{password: other}]}}
    """
    )

    loaded = load(file)

    assert loaded.warnings == ()
    assert "tests" not in masked(loaded.pipeline)
    assert [told(verdict) for verdict in check(loaded.pipeline)] == [
        ['row 1 differs: password: expected "other", got "canary"']
    ]


def test_samples_from_python_and_rows_in_python_values(
    pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    moment = dt.datetime(2026, 11, 15, 10, tzinfo=dt.UTC)
    sample = Sample(
        json={"event_id": 1, "price": Decimal("9.90"), "event_time": moment.isoformat()}, key=b"k"
    )

    landed = run_samples(pipeline_file(SHOP), {"clicks": [sample, Sample(text="{")]}, tmp_path / "landed")

    assert [row["price"] for row in landed.rows("clicks")] == [Decimal("9.90")]
    assert [letter["code"] for letter in landed.dead_letters("clicks")] == ["bad_json"]
    assert_rows(
        landed.path("clicks"),
        [{"price": Decimal("9.90"), "event_time": moment, "event_time_day": moment.date(), "_key": b"k"}],
    )
    with pytest.raises(AssertionError, match="row 1 differs: event_id: expected 2, got 1"):
        assert_rows(landed.path("clicks"), [{"event_id": 2, "price": 9.9}])
    with pytest.raises(AssertionError, match="row 1 is missing: a: expected 1"):
        assert_rows(tmp_path / "nowhere", [{"a": 1}])


def test_samples_for_an_unknown_source_and_a_run_that_fails(
    pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    pipeline = Pipeline.from_file(pipeline_file(SHOP))

    with pytest.raises(ValueError, match="the pipeline has no source 'click'; it has clicks"):
        run_samples(pipeline, {"click": []}, tmp_path)
    (tmp_path / "tables").write_text("in the way")
    with pytest.raises(TableError, match="a part of this path is a file, not a directory"):
        run_samples(pipeline, {"clicks": [Sample(json={"event_id": 1})]}, tmp_path)


ROUTED = """
    name: shop
    sources:
      clicks: {type: kafka, brokers: "localhost:9", topics: [clicks], format: json}
    tables:
      events:
        route: lake/of_{kind}/v{version}
        from: clicks
        schema: {kind: string, version: int, n: long}
"""


def test_the_path_of_a_route_counts_as_in_a_run(verdicts: Callable[..., list[Verdict]]) -> None:
    tests = """
    tests:
      names that a prefix makes good:
        events:
          clicks:
            - json: {kind: view, version: 1, n: 1}
            - json: {kind: _hidden, version: 1, n: 2}
            - json: {kind: .dot, version: 2, n: 3}
            - json: {version: 1, n: 4}
        tables:
          events/view/1: {rows: [{n: 1}]}
          events/_hidden/1: {rows: [{n: 2}]}
          events/.dot/2: {rows: [{n: 3}]}
          events: {dead_letters: [{code: bad_route}]}
"""

    [verdict] = verdicts(tests, ROUTED)

    assert (told(verdict), verdict.error) == ([], None)


def test_a_table_that_another_feeds_gets_what_landed_there(
    verdicts: Callable[[str, str], list[Verdict]],
) -> None:
    pipeline = """
    name: shop
    sources:
      clicks: {type: kafka, brokers: "localhost:9", topics: [clicks], format: json}
    tables:
      bronze: {path: bronze, from: clicks, schema: {id: long, note: string}}
      silver: {path: silver, from: bronze, schema: {id: int}, evolve: ignore}
    """
    tests = """
    tests:
      what does not fit silver stays in bronze:
        events:
          clicks: [{json: {id: 1, note: a}}, {json: {id: 9999999999}}, {text: "{"}]
        tables:
          bronze:
            rows: [{id: 1, note: a}, {id: 9999999999}]
            dead_letters: [{code: bad_json}]
          silver:
            rows: [{id: 1}]
            dead_letters: [{stage: schema, code: out_of_range}]
    """

    (verdict,) = verdicts(tests, pipeline)

    assert told(verdict) == []
    assert verdict.passed
