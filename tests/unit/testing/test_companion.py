"""Tests in a file beside the pipeline file, and `lakefeed test` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.command_line import Lakefeed

PIPELINE = """\
name: shop
sources: {clicks: {type: generate, format: json}}
tables: {clicks: {path: clicks, from: clicks, schema: {event_id: long, price: "decimal(10,2)"}}}
"""
TESTS = """\
tests:
  kept:
    events: {clicks: [{json: {event_id: 1, price: 9.90}}]}
    tables: {clicks: {rows: [{price: 9.90}]}}
  wrong:
    events: {clicks: [{json: {event_id: 1, price: 9.90}}]}
    tables: {clicks: {rows: [{event_id: 1, price: 9.99}]}}
"""


def written(folder: Path, pipeline: str, tests: str | None = None) -> Path:
    (folder / "shop.yaml").write_text(pipeline)
    if tests is not None:
        (folder / "shop.test.yaml").write_text(tests)
    return folder / "shop.yaml"


def test_difference_is_shown_side_by_side_and_ends_with_3(tmp_path: Path, lakefeed: Lakefeed) -> None:
    file = written(tmp_path, PIPELINE, TESTS)

    code, out, said = lakefeed("test", file)

    assert (code, said) == (3, "")
    assert [line.split() for line in out.splitlines()] == [
        ["ok", "kept"],
        ["FAILED", "wrong"],
        ["table", "column", "expected", "got"],
        ["clicks", "row", "1", "differs", "price", "9.99", "9.90"],
        ["1", "passed,", "1", "failed"],
    ]


def test_json_tells_the_same_to_programs(tmp_path: Path, lakefeed: Lakefeed) -> None:
    file = written(tmp_path, PIPELINE, TESTS)

    code, out, said = lakefeed("test", file, "--json")

    assert (code, said) == (3, "")
    kept, wrong = json.loads(out)
    assert kept == {"name": "kept", "passed": True, "differences": [], "error": None, "columns": {}}
    assert wrong["differences"] == [
        {"table": "clicks", "place": "row 1 differs", "column": "price", "expected": "9.99", "got": "9.90"}
    ]


def test_tests_that_pass_end_with_0_and_start_neither_spark_nor_a_client(tmp_path: Path) -> None:
    file = written(tmp_path, PIPELINE + TESTS.partition("  wrong")[0])
    program = (
        "import sys; from lakefeed.commands.app import app\n"
        f"try: app(['test', {str(file)!r}])\n"
        "except SystemExit as end: print(end.code)\n"
        "print(*sorted({'pyspark', 'py4j', 'confluent_kafka'} & sys.modules.keys()), 'end')"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)

    assert done.stdout.splitlines() == ["ok      kept", "1 passed, 0 failed", "0", "end"]


def test_file_without_tests_says_where_to_write_them(tmp_path: Path, lakefeed: Lakefeed) -> None:
    file = written(tmp_path, PIPELINE)

    code, out, said = lakefeed("test", file)

    assert (code, out) == (2, "")
    beside = tmp_path / "shop.test.yaml"
    assert said == f"{file}: there are no tests.\nAdd some under `tests` in the file, or in {beside}.\n"


def test_mistakes_in_the_file_of_tests_are_told_with_its_name_and_lines(
    tmp_path: Path, lakefeed: Lakefeed
) -> None:
    twice = written(tmp_path, PIPELINE + TESTS, TESTS.replace("  wrong:", "  another:"))

    code, _, said = lakefeed("test", twice)

    beside = tmp_path / "shop.test.yaml"
    assert code == 2
    assert said == f"{beside}:2: tests.kept: there is such a test in {twice} already; give it another name\n"

    beside.write_text("tests:\n  new:\n    events: {click: []}\n    tables: {clicks: {rwos: []}}\n")
    code, _, said = lakefeed("test", twice)
    assert (code, said.splitlines()) == (
        2,
        [
            f"{beside}:3: tests.new.events.click: unknown source 'click', did you mean 'clicks'?",
            f"{beside}:4: tests.new.tables.clicks.rwos: unknown key, did you mean 'rows'?",
        ],
    )

    beside.write_text("name: shop\n")
    code, _, said = lakefeed("test", twice)
    assert (code, said) == (
        2,
        f"{beside}:1: a file of tests holds `tests:` with a test by its name, and nothing else; got 'name'\n",
    )
