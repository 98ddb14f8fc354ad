"""The file of tests next to a pipeline file: `shop.test.yaml` for `shop.yaml`."""

from __future__ import annotations

from pathlib import Path

from lakefeed.errors import Problem
from lakefeed.pipeline.loading.document import Document
from lakefeed.text import listed, shown


def companion_of(path: Path) -> Path:
    """Where the tests of a pipeline file are, if they are not in the file itself."""
    return path.with_name(f"{path.stem}.test{path.suffix}")


def add_tests(document: Document, companion: Document) -> None:
    """Put the tests of the companion into the document, with the lines that they have there."""
    document.problems += companion.problems
    data = companion.data
    if not isinstance(data, dict) or set(data) != {"tests"} or not isinstance(data["tests"], dict):
        found = listed(map(repr, data)) if isinstance(data, dict) else shown(data)
        message = f"a file of tests holds `tests:` with a test by its name, and nothing else; got {found}"
        document.problems.append(Problem(companion.file, 1, "", message))
        return
    tests = document.data.setdefault("tests", {})
    for name, case in data["tests"].items():
        path = ("tests", name)
        if not isinstance(tests, dict) or name in tests:
            message = f"there is such a test in {document.file} already; give it another name"
            document.problems.append(companion.problem(path, message))
            continue
        tests[name] = case
        for key in [each for each in companion.lines if each[:2] == path]:
            document.lines[key], document.files[key] = companion.lines[key], companion.file
        document.substitutions |= {
            key: found for key, found in companion.substitutions.items() if key[:2] == path
        }
