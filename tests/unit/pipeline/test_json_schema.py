from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from lakefeed.commands.schema import schema
from lakefeed.commands.validate import validate
from lakefeed.errors import PipelineFileError
from lakefeed.pipeline.json_schema import json_schema
from reference_page import reference_markdown

Write = Callable[[str], Path]

FULL = """\
name: shop
sources:
  clicks:
    type: queue
    brokers: here
    topics: [a]
    start: latest
    format: {type: framed, header: 4}
    options: {a: 1, b: true, c: x}
    flush: {interval: 1s, rows: "${ROWS}", bytes: 64KB, idle: 500ms}
  more: {type: queue, brokers: here, format: lines}
tables:
  clicks:
    path: s3://lake/clicks
    from: [clicks, more]
    schema: {event_id: string not null, event_time: timestamp}
    partition_by: [day(event_time)]
    metadata: ${METADATA:-true}
    target_file_size: 1000000
    properties: {delta.appendOnly: true}
dead_letters: {path: s3://lake/letters}
spark: {conf: {spark.driver.memory: 4g}}
stop_timeout: 30s
"""


def _errors(text: str) -> list[str]:
    validator: Any = Draft202012Validator(json_schema())
    return [error.message for error in validator.iter_errors(yaml.safe_load(text))]


def test_the_schema_is_a_sound_json_schema_that_takes_a_full_file() -> None:
    Draft202012Validator.check_schema(json_schema())

    assert _errors(FULL) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("topics: [a]", "topcis: [a]"),
        ("type: queue\n", "type: quue\n"),
        ("interval: 1s", "interval: 5"),
        ("header: 4", "haeder: 4"),
        ("format: lines", "format: framed"),
        ("path: s3://lake/clicks", "paht: s3://lake/clicks"),
        ("stop_timeout: 30s", "stop_timeout: soon"),
        ("name: shop", "name: my shop"),
        ("metadata:", "metedata:"),
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(right: str, wrong: str) -> None:
    assert _errors(FULL.replace(right, wrong)) != []


def test_every_key_in_the_schema_is_described() -> None:
    described = json_schema()

    for section in (described, *described["$defs"].values()):
        for key, field in section["properties"].items():
            assert key == "type" or field.get("description"), key


def test_defaults_are_shown_as_they_are_written() -> None:
    flush = json_schema()["$defs"]["Flush"]["properties"]

    assert (flush["interval"]["default"], flush["bytes"]["default"]) == ("5s", "128MB")


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command()(validate)
    app.command()(schema)
    return app


def test_validate_counts_sources_and_tables(write: Write, small: str) -> None:
    result = CliRunner().invoke(_app(), ["validate", str(write(small))])

    assert (result.exit_code, result.stdout) == (0, "shop.yaml: ok (1 source, 1 table)\n")


def test_validate_prints_warnings_and_is_content(write: Write, small: str) -> None:
    file = write(small + "storage: {password: canary}\n")

    result = CliRunner().invoke(_app(), ["validate", str(file)])

    assert result.exit_code == 0
    assert result.stderr == (
        "warning: shop.yaml:6: storage.password: a secret is written in the file; "
        "put it in a variable: ${PASSWORD}\n"
    )


def test_validate_raises_the_problems_for_the_app_to_print(write: Write, small: str) -> None:
    result = CliRunner().invoke(_app(), ["validate", str(write(small + "flsh: {}\n"))])

    assert isinstance(result.exception, PipelineFileError)
    assert result.exception.exit_code == 2
    assert str(result.exception) == "shop.yaml:6: flsh: unknown key, did you mean 'flush'?"


def test_schema_prints_json() -> None:
    result = CliRunner().invoke(_app(), ["schema"])

    assert json.loads(result.stdout) == json_schema()


def test_the_reference_names_every_key_with_its_default() -> None:
    text = reference_markdown()

    assert (
        "| `interval` | duration | `5s` | The longest time that an event waits until its batch ends." in text
    )
    assert "| `from` | text or list of text |  |" in text
    assert "## Source: queue" in text
    assert "## Format: framed" in text
