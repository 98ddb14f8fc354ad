"""Pydantic's errors in plain words, each at its path of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lakefeed.pipeline.loading.checks.consistency import FieldProblem
from lakefeed.pipeline.loading.document import Document, below
from lakefeed.pipeline.loading.fields import keys_of, section_at
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Path
from lakefeed.text import did_you_mean, listed, shown

_EXPECTED = {
    "a whole number": ("int_type", "int_parsing", "int_from_float", "int_parsing_size"),
    "a number": ("float_type", "float_parsing", "finite_number"),
    "true or false": ("bool_type", "bool_parsing"),
    "text": ("string_type", "string_sub_type"),
    "a list": ("list_type", "tuple_type", "set_type", "frozen_set_type"),
    "keys and values": ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"),
    "nothing": ("none_required",),
    "a timestamp such as 2026-11-15T10:00:00Z": (
        "datetime_type",
        "datetime_parsing",
        "datetime_from_date_parsing",
        "timezone_aware",
    ),
}
_EXPECTED_BY_TYPE = {kind: words for words, kinds in _EXPECTED.items() for kind in kinds}
_BOUNDS = {
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "too_long": "at most {max_length} entries",
}
_SHORTEST_SCRUBBED = 4
_FIRST_MARK = 0xE000  # characters for private use, which no message holds
_QUOTED = re.compile(r"'([^']+)'|`([^`]+)`|\"([^\"]+)\"")


@dataclass(frozen=True)
class _Mismatch:
    """A value that does not fit: what was expected, or a whole message where there is more to say."""

    path: Path
    expected: str | None
    message: str
    in_union: bool


def field_problems(error: ValidationError, document: Document) -> Iterator[FieldProblem]:
    """Every error of a validation of the document's data, in plain words."""
    by_path: dict[Path, list[_Mismatch]] = {}
    for details in error.errors(include_url=False):
        # Checks between parts are run again by the loader, on all that is sound.
        if details["type"] != "inconsistent":
            mismatch = _mismatch(details, document)
            by_path.setdefault(mismatch.path, []).append(mismatch)
    for path, found in by_path.items():
        # Of a union of keys and a word, keys were written: that the word was not is noise.
        within = any(len(other) > len(path) and other[: len(path)] == path for other in by_path)
        if within and all(each.in_union for each in found):
            continue
        for message in _merged(found, _got(path, document)):
            yield FieldProblem(path, message)


def _merged(found: list[_Mismatch], got: str) -> Iterator[str]:
    """One message for all branches of a union, else each message."""
    expected = [each.expected for each in found if each.in_union and each.expected]
    yield from dict.fromkeys(each.message for each in found if each.expected is None)
    yield from dict.fromkeys(
        f"expected {each.expected}{got}" for each in found if each.expected and not each.in_union
    )
    # Where one branch of a union has something particular to say, what the others wanted is noise.
    if expected and all(each.expected for each in found):
        yield f"expected {' or '.join(dict.fromkeys(expected))}{got}"


def _mismatch(details: ErrorDetails, document: Document) -> _Mismatch:
    kind, context = details["type"], details.get("ctx", {})
    path, in_union = _path(details["loc"], kind, document)
    expected = _EXPECTED_BY_TYPE.get(kind)
    if expected is None and kind in _BOUNDS:
        expected = _BOUNDS[kind].format(**context)
    # What is expected does not contain the value; a validator's own message may.
    message = "" if expected else scrubbed(_message(details, context, path, document), path, document)
    return _Mismatch(path, expected, message, in_union)


def _message(details: ErrorDetails, context: dict[str, Any], path: Path, document: Document) -> str:
    kind = details["type"]
    if kind == "missing":
        return "required, but missing"
    if kind == "extra_forbidden":
        return _unknown_key(path, document)
    if kind == "too_short":
        return (
            "expected at least one"
            if context["min_length"] == 1
            else f"expected at least {context['min_length']}"
        )
    if kind in ("value_error", "assertion_error"):
        return str(context["error"])
    return details["msg"]


def _unknown_key(path: Path, document: Document) -> str:
    section = section_at(path[:-1], document.data, document.model or Pipeline)
    keys = keys_of(section) if section else []
    if document.model and len(path) == 1:
        # In code it is the name of an argument.
        keys = list(document.model.model_fields)
    near = did_you_mean(str(path[-1]), keys)
    return f"unknown key{near}" if near else f"unknown key; known are {listed(keys)}"


def _path(location: tuple[str | int, ...], kind: str, document: Document) -> tuple[Path, bool]:
    """The path in the file, and whether steps were dropped that only name the branch of a union."""
    value = document.data
    path: list[str | int] = []
    steps = location[:-1] if location and location[-1] == "[key]" else location
    for at, step in enumerate(steps):
        try:
            value = below(value, step)
        except KeyError:
            if at < len(steps) - 1 or kind not in ("missing", "connector"):
                continue
        path.append(step)
    return tuple(path), len(path) < len(steps)


def _got(path: Path, document: Document) -> str:
    if path in document.substitutions:
        return f", got {shown(document.substitutions[path].raw)}"
    try:
        return f", got {shown(document.at(path))}"
    except KeyError:
        return ""


def scrubbed(message: str, path: Path, document: Document) -> str:
    """The message with `${NAME}` for values of variables, and for parts of those that belong to the path."""
    everywhere = {pair for found in document.substitutions.values() for pair in found.values}
    # Names are put in last: a value may look like the name of a variable.
    marks = {name: chr(_FIRST_MARK + at) for at, name in enumerate(sorted({name for name, _ in everywhere}))}
    for name, value in sorted(everywhere, key=lambda pair: -len(pair[1])):
        for look in (repr(value)[1:-1], value) if len(value) >= _SHORTEST_SCRUBBED else ():
            message = message.replace(look, marks[name])
    for key, found in document.substitutions.items():
        if key[: len(path)] == path:
            for name, value in found.values:
                message = _without_parts(message, marks[name], value, found.raw)
    for name, mark in marks.items():
        message = message.replace(mark, f"${{{name}}}")
    return message


def _without_parts(message: str, mark: str, value: str, raw: str) -> str:
    """Validators may quote a piece of what they read, such as the word that is no type."""

    def marked(match: re.Match[str]) -> str:
        part = match[1] or match[2] or match[3]
        return mark if part in value and part not in raw else match[0]

    message = _QUOTED.sub(marked, message)
    while True:
        shared = SequenceMatcher(None, message, value, autojunk=False).find_longest_match()
        if shared.size < _SHORTEST_SCRUBBED:
            return message
        message = message.replace(message[shared.a : shared.a + shared.size], mark)
