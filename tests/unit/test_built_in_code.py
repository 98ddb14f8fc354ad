"""Models that are built in code: mistakes are told as they are told of a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lakefeed import Pipeline, PipelineFileError, Table
from lakefeed.formats import JsonFormat
from lakefeed.sources import GenerateSource, KafkaSource


def told(build: Any, **given: Any) -> list[str]:
    with pytest.raises(PipelineFileError) as refused:
        build(**given)
    assert refused.value.exit_code == 2
    return str(refused.value).splitlines()


def test_a_wrong_key_is_told_with_the_one_that_is_meant() -> None:
    assert told(KafkaSource, brokers="here", topic=["a"], format="json") == [
        "KafkaSource: topic: unknown key, did you mean 'topics'?"
    ]
    assert told(Table, path="lake/a", form="clicks") == ["Table: form: unknown key, did you mean 'from_'?"]


def test_mistakes_inside_of_parts_that_are_given_as_mappings_are_told_with_their_path() -> None:
    lines = told(
        Pipeline,
        name="shop",
        sources={"clicks": {"type": "generate", "row": 5}},
        tables={"clicks": Table(path="/lake/clicks", from_=("clicks",)), "b": {"path": 5, "from": "clicks"}},
        flush={"interval": "often"},
    )

    assert "Pipeline: sources.clicks.row: unknown key, did you mean 'rows'?" in lines
    assert (
        "Pipeline: flush.interval: expected a duration such as 500ms, 5s, 10m, 2h or 7d, got 'often'" in lines
    )
    assert "Pipeline: tables.b.path: expected text, got 5" in lines


def test_what_does_not_fit_together_is_told_with_a_near_name() -> None:
    assert told(
        Pipeline,
        name="shop",
        sources={"clicks": GenerateSource()},
        tables={"clicks": Table(path="/lake/clicks", from_=("click",))},
    ) == ["Pipeline: tables.clicks.from: unknown source 'click', did you mean 'clicks'?"]


def test_a_value_of_the_wrong_kind_is_told_under_the_name_that_code_has_for_it() -> None:
    assert told(Table, path="/lake/a", from_=5) == ["Table: from_: expected a list, got 5"]


def test_no_secret_is_told() -> None:
    lines = told(
        KafkaSource, brokers="here", topics="a", format=JsonFormat(), options={"sasl.password": ["canary-1"]}
    )

    assert lines and "canary" not in "\n".join(lines)


def test_a_sound_model_is_the_same_as_one_from_a_file() -> None:
    built = Pipeline(
        name="shop",
        sources={"clicks": GenerateSource(rows=5)},
        tables={"clicks": Table(path="/lake/clicks", from_=("clicks",))},
    )

    assert built == Pipeline.model_validate(
        {
            "name": "shop",
            "sources": {"clicks": {"type": "generate", "rows": 5}},
            "tables": {"clicks": {"path": "/lake/clicks", "from": "clicks"}},
        }
    )


def test_the_pipeline_of_the_documentation_can_be_built() -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    (block,) = [text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "pipeline = " in text]
    found: dict[str, Any] = {}

    exec(block, found)

    assert found["pipeline"].tables["clicks"].from_ == ("clicks",)
    assert found["pipeline"].flush.interval == 5.0
