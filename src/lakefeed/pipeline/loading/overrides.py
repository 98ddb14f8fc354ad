"""`--set a.b=value`: values from the command line that replace those in the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakefeed.errors import Problem
from lakefeed.pipeline.loading.checks.consistency import dotted
from lakefeed.pipeline.loading.document import Document, read_document
from lakefeed.pipeline.secrets import OPTION_MAPS, Path
from lakefeed.text import shown

FILE = "--set"
"""What problems of an override name instead of the file; the line is its ordinal among the overrides."""

_MAPS_OF_DOTTED_KEYS = OPTION_MAPS | {"properties"}


def apply_override(document: Document, text: str, number: int, environment: Mapping[str, str]) -> None:
    """Put one override into the document; what is wrong with it goes to the document's problems."""
    key, equals, value = text.partition("=")
    if not equals or not all(key.split(".")):
        message = f"expected KEY=VALUE such as flush.interval=1s, got {shown(text if not equals else key)}"
        document.problems.append(Problem(FILE, number, "", f"--set {message}"))
        return
    read = read_document(value, FILE, environment, line=number)
    if read.problems:
        document.problems += [Problem(FILE, number, key, problem.message) for problem in read.problems]
        return
    parent, path, problem = _parent(document.data, key)
    if problem is not None:
        document.problems.append(Problem(FILE, number, key, f"--set {problem}"))
        return
    parent[str(path[-1])] = read.data
    _forget(document, path)
    for below in read.lines:
        document.lines[(*path, *below)], document.files[(*path, *below)] = number, FILE
    for new in (path[:length] for length in range(1, len(path) + 1)):
        if new not in document.lines:
            document.lines[new], document.files[new] = number, FILE
    document.substitutions |= {(*path, *below): found for below, found in read.substitutions.items()}


def _parent(data: Any, key: str) -> tuple[dict[str, Any], Path, str | None]:
    """The mapping that holds the key, the path to the key, and why there is none."""
    parts = key.split(".")
    path: list[str] = []
    while True:
        if not isinstance(data, dict):
            kind = "a list; set all of it, as in KEY=[a, b]" if isinstance(data, list) else "a single value"
            return {}, tuple(path), f"cannot reach below {'.'.join(path)}: it holds {kind}"
        taken = len(parts) if path and path[-1] in _MAPS_OF_DOTTED_KEYS else _existing(data, parts)
        path.append(".".join(parts[:taken]))
        parts = parts[taken:]
        if not parts:
            return data, tuple(path), None
        if data.get(path[-1]) is None:
            data[path[-1]] = {}
        data = data[path[-1]]


def _existing(data: dict[str, Any], parts: list[str]) -> int:
    """How many parts make up a key that exists; one if none does."""
    return next((length for length in range(1, len(parts) + 1) if ".".join(parts[:length]) in data), 1)


def _forget(document: Document, path: Path) -> None:
    """Drop what was known of the values that were replaced."""
    stores: tuple[dict[Path, Any], ...] = (document.lines, document.files, document.substitutions)
    for known in stores:
        for below in [each for each in known if each[: len(path)] == path]:
            del known[below]
    document.problems[:] = [problem for problem in document.problems if not _is_at(problem, path)]


def _is_at(problem: Problem, path: Path) -> bool:
    key = dotted(path)
    return problem.key == key or problem.key.startswith(key + ".")
