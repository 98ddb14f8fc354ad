"""Models that are built in code: what is wrong with them, in the words used for pipeline files."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from lakefeed.errors import PipelineFileError, Problem
from lakefeed.pipeline.loading.checks.consistency import dotted
from lakefeed.pipeline.loading.document import Document
from lakefeed.pipeline.loading.fields import key_of
from lakefeed.pipeline.loading.messages import field_problems
from lakefeed.pipeline.secrets import Path, Redactor, secret_strings
from lakefeed.pipeline.section import Section


def refusal(model: type[Section], given: dict[str, Any], error: ValidationError) -> PipelineFileError:
    """The error for a model that was built from these arguments; no secret of them is in it."""
    data = _plain(given)
    redact = Redactor(secret_strings(data)).redact
    problems = [
        Problem(model.__name__, 0, dotted(_named(model, given, found.path)), redact(found.message))
        for found in field_problems(error, Document(model.__name__, data, model=model))
    ]
    # The model itself says what does not fit together, each in a line with its path.
    for details in error.errors(include_url=False):
        if details["type"] == "inconsistent":
            problems += [Problem(model.__name__, 0, "", redact(line)) for line in details["msg"].splitlines()]
    return PipelineFileError(list(dict.fromkeys(problems)))


def _named(model: type[Section], given: dict[str, Any], path: Path) -> Path:
    """A path that begins with the argument as it was given; `from` is no name in Python."""
    names = {key_of(name, field): name for name, field in model.model_fields.items()}
    if not path or path[0] in given:
        return path
    return (names.get(str(path[0]), path[0]), *path[1:])


def _plain(value: Any) -> Any:
    """Arguments as the data of a file: lists for tuples, other values as they are."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
