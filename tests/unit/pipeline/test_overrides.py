from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lakefeed.pipeline.loading.load import load

Problems = Callable[..., list[str]]
Write = Callable[[str], Path]


def test_an_override_takes_the_place_of_a_value_and_makes_missing_sections(write: Write, small: str) -> None:
    overrides = [
        "flush.rows=7",
        "tables.clicks.create=false",
        "sources.clicks.topics=[a, b]",
        "spark.conf.spark.driver.memory=2g",
        "tables.clicks.schema={a: long}",
        "storage.A=${HERE}",
    ]

    pipeline = load(write(small), overrides, {"HERE": "x=y"}).pipeline

    assert pipeline.flush.rows == 7
    assert pipeline.tables["clicks"].create is False
    assert pipeline.tables["clicks"].columns == {"a": "long"}
    assert pipeline.sources["clicks"].model_dump()["topics"] == ("a", "b")
    assert pipeline.spark.conf == {"spark.driver.memory": "2g"}
    assert pipeline.storage == {"A": "x=y"}


def test_an_override_mends_what_is_broken_in_the_file(write: Write, small: str) -> None:
    text = small + "flush:\n  rows: ${UNSET}\n"

    assert load(write(text), ["flush.rows=7"], {}).pipeline.flush.rows == 7


def test_problems_of_overrides_are_told_apart_from_those_of_the_file(problems: Problems, small: str) -> None:
    found = problems(
        small + "stop_timeout: 5\n",
        "flush.rows=abc",
        "flsh.rows=1",
        "flush",
        "name.x=1",
        "storage.a={",
        "flush.bytes=${NO}",
        "=1",
    )

    assert found == [
        "--set:1: flush.rows: expected a whole number, got 'abc'",
        "--set:2: flsh: unknown key, did you mean 'flush'?",
        "--set:3: --set expected KEY=VALUE such as flush.interval=1s, got 'flush'",
        "--set:4: name.x: --set cannot reach below name: it holds a single value",
        "--set:5: storage.a: not valid YAML: the { that opens here is not closed",
        "--set:6: flush.bytes: variable ${NO} is not set; export NO=..., or write ${NO:-default}",
        "--set:7: --set expected KEY=VALUE such as flush.interval=1s, got ''",
        "shop.yaml:6: stop_timeout: expected a duration with its unit, got 5; write 5s for seconds",
    ]


def test_an_override_cannot_reach_into_a_list(problems: Problems, small: str) -> None:
    text = small.replace("brokers: here}", "brokers: here, topics: [a]}")

    assert problems(text, "sources.clicks.topics.0=b") == [
        "--set:1: sources.clicks.topics.0: --set cannot reach below sources.clicks.topics: it holds a list; "
        "set all of it, as in KEY=[a, b]"
    ]
