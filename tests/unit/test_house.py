"""The package stays easy to read: no file holds two subjects, no function is longer than a screen."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import lakefeed
from lakefeed.pipeline import connectors
from lakefeed.pipeline.options.changes import Mode

HOUSE = Path(lakefeed.__file__).parent
ROOT = HOUSE.parents[1]
FILE, FUNCTION = 800, 60
"""The most lines of a file and of a function."""

LONGER = {
    "engine/spark/source.py:data_source": "the classes that it makes hold the plan of one flow",
}
"""Files and functions that may be longer, with the reason."""


def _long_files() -> Iterator[str]:
    for path in HOUSE.rglob("*.py"):
        if len(path.read_text().splitlines()) > FILE:
            yield str(path.relative_to(HOUSE))


def _long_functions() -> Iterator[str]:
    for path in HOUSE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno >= FUNCTION:
                    yield f"{path.relative_to(HOUSE)}:{node.name}"


def test_no_file_and_no_function_is_longer_than_one_can_read_at_once() -> None:
    assert sorted({*_long_files(), *_long_functions()} - LONGER.keys()) == []


def test_every_source_and_every_write_mode_keeps_its_contract() -> None:
    suites = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py")]
    cases = {name for text in suites for name in re.findall(r'SourceCase\(\s*"(\w+)"', text)}
    modes = (ROOT / "tests" / "contract" / "test_modes.py").read_text()

    assert set(connectors._ROOMS["source"]) - cases == set()
    assert [mode for mode in get_args(Mode) if f'    "{mode}": lambda runs' not in modes] == []


def test_decisions_are_numbered_without_gaps_and_all_of_them_are_listed() -> None:
    files = sorted(file.name for file in (ROOT / "docs" / "decisions").glob("*.md"))
    page = (ROOT / "docs" / "architecture.md").read_text()

    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))
    assert [name for name in files if f"](decisions/{name})" not in page] == []


def test_the_way_of_an_event_is_told_in_at_most_fifteen_files_that_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()

    walk = re.findall(r"^\| \d+ \| \[\S+\]\(\.\./(\S+)\)", page, re.M)

    assert 0 < len(walk) <= 15
    assert [file for file in walk if not (ROOT / file).is_file()] == []


def test_every_class_that_the_glossary_names_is_there() -> None:
    page = (ROOT / "docs" / "concepts.md").read_text()
    glossary = page.partition("| term in the code |")[2].partition("\n\n")[0]

    named = re.findall(r"`([A-Z]\w+)`", glossary)
    code = "".join(file.read_text() for file in HOUSE.rglob("*.py"))

    assert named
    assert [name for name in named if f"class {name}" not in code] == []
