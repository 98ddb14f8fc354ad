"""The house stays easy to read: short files, short functions, folders that one can take in at a glance."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import lakefeed

HOUSE = Path(lakefeed.__file__).parent
FILE, FUNCTION, FOLDER = 400, 50, 12
"""The most lines of a file, lines of a function, and modules of a folder."""

LONGER = {
    "engine/spark/source.py:data_source": "the classes that it makes hold the plan of one flow",
}
"""Files and functions that may be longer, with the reason."""

FULLER = {
    "commands": "a file for each command",
    "commands/table": "a file for each command",
    "engine/batch": "a file for each step of a batch",
    "pipeline/loading": "a file for each step from text to model, and for each kind of check",
    "rows": "a file for each step",
    "pipeline/options": "a file for each value with rules of its own",
    "formats/protobuf": "Protobuf brings a language of its own: tokens, files, messages, the wire",
    "reports": "a file for each report, and for what several of them look at",
    "sources/postgres": "a file for each noun of the server: slot, relations, types, checks",
    "watch": "a file for each who watches a run, and for what they show",
    "formats/fit": "a file for each kind of value that is fitted",
}
"""Folders that may hold more modules, with the reason."""


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


def _full_folders() -> Iterator[str]:
    for folder in [HOUSE, *(path for path in HOUSE.rglob("*") if path.is_dir())]:
        if len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) > FOLDER:
            yield str(folder.relative_to(HOUSE))


def test_no_file_and_no_function_is_longer_than_one_can_read_at_once() -> None:
    assert sorted({*_long_files(), *_long_functions()} - LONGER.keys()) == []


def test_no_folder_is_fuller_than_one_can_take_in_at_a_glance() -> None:
    assert sorted(set(_full_folders()) - FULLER.keys()) == []
