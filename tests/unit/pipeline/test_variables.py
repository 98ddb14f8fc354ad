from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakefeed.pipeline.loading.load import load

Problems = Callable[..., list[str]]
Write = Callable[[str], Path]


def test_a_variable_is_typed_like_a_value_of_the_file(write: Write, small: str) -> None:
    text = small + "flush:\n  rows: ${ROWS}\n  interval: ${WAIT}\n"

    flush = load(write(text), environment={"ROWS": "5", "WAIT": "2s"}).pipeline.flush

    assert (flush.rows, flush.interval) == (5, 2.0)


def test_a_variable_in_quotes_serves_a_number_too(write: Write, small: str) -> None:
    text = small + 'flush: {rows: "${ROWS}"}\n'

    assert load(write(text), environment={"ROWS": "5"}).pipeline.flush.rows == 5


def test_several_variables_in_one_text_defaults_and_escapes(write: Write, small: str) -> None:
    text = small + "storage:\n  a: ${A}-${B:-b}\n  c: $${A} costs $5\n  d: ${EMPTY:-full}\n  e: ${NONE:-}x\n"

    storage = load(write(text), environment={"A": "1", "EMPTY": ""}).pipeline.storage

    assert storage == {"a": "1-b", "c": "${A} costs $5", "d": "full", "e": "x"}


def test_a_variable_never_changes_the_structure_of_the_file(write: Write, small: str) -> None:
    text = small + "storage:\n  a: ${A}\n"
    value = "x\nflush: {rows: 1}  # ]}"

    pipeline = load(write(text), environment={"A": value}).pipeline

    assert pipeline.storage == {"a": value}
    assert pipeline.flush.rows == 1_000_000


@pytest.mark.parametrize("value", ["12345", "007", "1_000", "1e5", "True", "no", "", "[1, 2]", "1.10"])
def test_a_secret_reaches_the_client_as_it_was_set(write: Write, small: str, value: str) -> None:
    pipeline = load(write(small + "storage:\n  password: ${PW}\n"), environment={"PW": value}).pipeline

    assert pipeline.storage == {"password": value}


def test_unset_variables_are_all_reported_and_hide_no_other_problem(problems: Problems) -> None:
    text = """\
name: ${NAME}
sources:
  clicks: {type: queue, brokers: "${A}:${B}", topcis: x}
tables:
  clicks: {path: "${LAKE}/clicks", from: "${SOURCE}", create: maybe}
flush:
  rows: ${ROWS}
  bytes: ${OH NO}
"""

    assert problems(text, A="here") == [
        "shop.yaml:1: name: variable ${NAME} is not set; export NAME=..., or write ${NAME:-default}",
        "shop.yaml:3: sources.clicks.brokers: variable ${B} is not set; export B=..., or write ${B:-default}",
        "shop.yaml:3: sources.clicks.topcis: unknown key, did you mean 'topics'?",
        "shop.yaml:5: tables.clicks.create: expected true or false, got 'maybe'",
        "shop.yaml:5: tables.clicks.from: variable ${SOURCE} is not set; export SOURCE=..., or write "
        "${SOURCE:-default}",
        "shop.yaml:5: tables.clicks.path: variable ${LAKE} is not set; export LAKE=..., or write "
        "${LAKE:-default}",
        "shop.yaml:7: flush.rows: variable ${ROWS} is not set; export ROWS=..., or write ${ROWS:-default}",
        "shop.yaml:8: flush.bytes: '${' must be followed by a name and '}'; write '$${' for the characters "
        "themselves",
    ]


def test_the_name_of_an_unset_secret_is_shown(problems: Problems, small: str) -> None:
    assert problems(small + "storage:\n  password: ${PW_OF_STORE}\n") == [
        "shop.yaml:7: storage.password: variable ${PW_OF_STORE} is not set; export PW_OF_STORE=..., or write "
        "${PW_OF_STORE:-default}"
    ]


def test_the_value_of_a_variable_is_never_printed(problems: Problems) -> None:
    text = """\
name: ${V}
sources:
  clicks: {type: queue, brokers: here, format: "${V}", start: "${V}"}
  other: {type: "${V}"}
tables:
  clicks:
    path: ${V}://x
    from: ${V}
    create: ${V}
    compression: ${V}
    schema: {a: "${V}", b: "array<${V}>"}
    partition_by: ["${V}(a)"]
  more: {path: "lake/${V}", from: clicks}
  same: {path: "lake/${V}", from: clicks}
flush:
  rows: ${V}
  interval: ${V}
  bytes: ${V}
"""

    found = problems(text, V="cañary ' \"x")
    found += problems(text, V="canary")

    assert len(found) > 20
    assert not [problem for problem in found if "anary" in problem or "añary" in problem]
    assert "shop.yaml:16: flush.rows: expected a whole number, got '${V}'" in found
