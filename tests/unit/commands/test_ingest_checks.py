"""What does not fit to `app_id`, `transform`, `coerce` and `assignment: group` is told with its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.errors import PipelineFileError

KAFKA = "{type: kafka, brokers: localhost, topics: [a, b], format: json}"


@pytest.mark.parametrize(
    ("source", "table", "problem"),
    [
        (
            KAFKA,
            "app_id: x",
            "app_id: its positions say nothing of topics, so the table must take one; it takes a, b",
        ),
        ("{type: generate}", "app_id: x", "app_id: its positions say nothing of topics"),
        (
            "{type: kafka, brokers: x, topics: [a], format: text}",
            "coerce: kafka-delta-ingest",
            "coerce: works on json and avro",
        ),
        (KAFKA, "transform: {a: 'b('}", "transform: a: not a JMESPath expression"),
        (
            "{type: kafka, brokers: x, topics: [a], format: json, assignment: group}",
            "{mode: upsert, keys: id}",
            "several processes can only append",
        ),
    ],
)
def test_mistakes_are_told(
    pipeline_file: Callable[[str], Path], source: str, table: str, problem: str
) -> None:
    keys = table.strip("{}") if table.startswith("{mode") else table
    file = pipeline_file(
        f"""\
        name: shop
        sources: {{s: {source}}}
        tables: {{t: {{path: lake/t, from: s, {keys}}}}}
        """
    )

    with pytest.raises(PipelineFileError) as caught:
        Pipeline.from_file(file)

    assert problem in str(caught.value)


def test_one_topic_of_several_may_have_an_app_id(pipeline_file: Callable[[str], Path]) -> None:
    file = pipeline_file(
        f"""\
        name: shop
        sources: {{s: {KAFKA}}}
        tables:
          t: {{path: lake/t, from: s, streams: a, app_id: clicks, transform: {{day: ts}}}}
        """
    )

    assert Pipeline.from_file(file).tables["t"].app_id == "clicks"


def test_group_has_a_file_of_its_own(pipeline_file: Callable[[str], Path]) -> None:
    file = pipeline_file(
        """\
        name: shop
        sources:
          k: {type: kafka, brokers: x, topics: [a], format: json, assignment: group}
          gen: {type: generate}
        tables: {t: {path: lake/t, from: k}, u: {path: lake/u, from: gen}}
        """
    )

    with pytest.raises(PipelineFileError) as caught:
        Pipeline.from_file(file)

    assert "assignment: every process would read 'gen' whole, which only one may" in str(caught.value)
