"""`lakefeed validate` and `schema`: every problem with its line, and no secret."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import jsonschema
import pytest
import yaml

from lakefeed.commands import demo
from support.command_line import GOOD, Lakefeed
from support.secret_shop import SECRET, assert_no_canary


def test_missing_file_exits_with_2_and_names_it(lakefeed: Lakefeed, tmp_path: Path) -> None:
    for command in ("validate", "test", "run", "status", "doctor"):
        code, _, said = lakefeed(command, tmp_path / "gone.yaml")

        assert code == 2
        assert str(tmp_path / "gone.yaml") in said
        assert "Traceback" not in said


def test_validate_counts_what_it_found(lakefeed: Lakefeed, pipeline_file: Callable[[str], Path]) -> None:
    file = pipeline_file(GOOD)

    assert lakefeed("validate", file) == (0, f"{file}: ok (1 source, 1 table)\n", "")


def test_every_problem_is_told_with_its_line_by_validate_and_by_run(
    lakefeed: Lakefeed, pipeline_file: Callable[[str], Path]
) -> None:
    file = pipeline_file(
        """\
        name: shop
        sources:
          clicks: {type: generate, rwos: 10}
        tables:
          events:
            path: events
            from: click
            schema: {event_id: lnog}
        """
    )

    for command in ("validate", "run", "status"):
        code, out, said = lakefeed(command, file)

        assert (code, out) == (2, "")
        problems = said.splitlines()
        assert [line.split(": ")[0] for line in problems] == [f"{file}:3", f"{file}:7", f"{file}:8"]
        assert "rwos" in problems[0] and "'rows'" in problems[0]
        assert "click" in problems[1] and "'clicks'" in problems[1]
        assert "lnog" in problems[2] and "'long'" in problems[2]
    assert not (file.parent / ".lakefeed").exists()


def test_schema_prints_json_schema_that_describes_a_pipeline(lakefeed: Lakefeed) -> None:
    code, out, said = lakefeed("schema")

    assert code == 0
    # Beside the output, for whoever reads it; the output itself is for the editor.
    assert said.splitlines()[-1] == "# yaml-language-server: $schema=lakefeed.schema.json"
    assert "run `lakefeed schema > lakefeed.schema.json`, and begin the pipeline file with" in said
    described = json.loads(out)
    assert described["$schema"].startswith("https://json-schema.org/")
    assert described["required"] == ["name", "sources", "tables"]
    assert "partition_by" in out


def test_schema_accepts_what_validate_accepts_and_refuses_a_misspelt_key(lakefeed: Lakefeed) -> None:
    checker = jsonschema.Draft202012Validator(json.loads(lakefeed("schema")[1]))

    for text in (GOOD, SECRET, demo._PIPELINE.format(rows=10)):
        assert list(checker.iter_errors(yaml.safe_load(dedent(text)))) == []
    for wrong in (GOOD.replace("from:", "form:"), GOOD.replace("generate", "genrate"), "name: shop"):
        assert list(checker.iter_errors(yaml.safe_load(dedent(wrong))))


@pytest.mark.parametrize(
    "wrong",
    ["sasl.mechanism: PLAIN", "retry_timeout: 1s", "topics: [clicks]"],
)
@pytest.mark.usefixtures("canaries")
def test_no_secret_is_shown_by_validate(
    lakefeed: Lakefeed, wrong: str, pipeline_file: Callable[[str], Path]
) -> None:
    good, bad = pipeline_file(SECRET), SECRET.replace(wrong, "no_such_key: [canary]")

    code, out, said = lakefeed("validate", good)
    bad_code, bad_out, bad_said = lakefeed("validate", pipeline_file(bad))

    assert code == 0, said
    assert bad_code == 2
    assert_no_canary(out, said, bad_out, bad_said)


def test_a_function_that_is_not_there_is_told_with_its_line_before_anything_starts(
    lakefeed: Lakefeed, pipeline_file: Callable[[str], Path]
) -> None:
    file = pipeline_file(
        """\
        name: shop
        sources:
          clicks: {type: generate, rows: 10}
        tables:
          events: {path: events, from: clicks, python: clean:enrich}
          others:
            path: others
            from: clicks
            python: clean:enrihc
        """
    )

    missing = "there is no module 'clean'; put clean.py beside the pipeline file, or install it"
    code, _, said = lakefeed("validate", file)
    assert code == 2
    assert said.splitlines()[0] == f"{file}:5: tables.events.python: {missing}"

    (file.parent / "clean.py").write_text("def enrich(batch):\n    return batch\n")
    for command in ("validate", "plan", "run"):
        code, _, said = lakefeed(command, file)

        assert code == 2
        wrong = "module 'clean' has no function 'enrihc', did you mean 'enrich'?"
        assert said.splitlines() == [f"{file}:9: tables.others.python: {wrong}"]
    assert not (file.parent / ".lakefeed").exists()
