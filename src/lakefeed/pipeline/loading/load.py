"""Loading a pipeline file: everything that is wrong with it at once, each with its line."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from lakefeed.errors import PipelineFileError, Problem
from lakefeed.pipeline.loading.checks.consistency import FieldProblem, consistency_problems, dotted
from lakefeed.pipeline.loading.companion import add_tests, companion_of
from lakefeed.pipeline.loading.document import Document, Unset, read_document
from lakefeed.pipeline.loading.messages import field_problems, scrubbed
from lakefeed.pipeline.loading.outline import Outline
from lakefeed.pipeline.loading.overrides import apply_override
from lakefeed.pipeline.options.paths import FileContext
from lakefeed.pipeline.pipeline import Lines, Pipeline
from lakefeed.pipeline.secrets import (
    Redactor,
    in_option_map,
    is_connection,
    is_secret_at,
    mask_text,
    scalars,
    secret_strings,
)
from lakefeed.text import did_you_mean, shown

_LARGEST_FILE = 1024**2
P = TypeVar("P", bound=Pipeline)

_log = logging.getLogger("lakefeed")


@dataclass(frozen=True)
class Loaded:
    """A sound pipeline, and what its author should know all the same."""

    pipeline: Pipeline
    warnings: tuple[Problem, ...] = ()


def load(
    path: str | Path,
    overrides: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    with_tests: bool = False,
    model: type[Pipeline] = Pipeline,
) -> Loaded:
    """Load a pipeline file as a `model`, connecting to nothing. Raises PipelineFileError with every problem.

    `overrides` are `a.b=value`, as for `--set`; variables come from the process environment by default.
    `with_tests` adds the tests of the file next to it, if there is one.
    """
    variables = os.environ if environment is None else environment
    file = str(path)
    document = read_document(_read(Path(path), file), file, variables)
    _require_mapping(document)
    tests = companion_of(Path(path))
    if with_tests and tests.exists():
        add_tests(document, read_document(_read(tests, str(tests)), str(tests), variables))
    for number, text in enumerate(overrides, 1):
        apply_override(document, text, number, variables)
    lines = {path: (document.files.get(path, file), line) for path, line in document.lines.items()}
    pipeline = _validated(document, FileContext(Path(path).absolute().parent), model, Lines(lines))
    return Loaded(pipeline, tuple(_warnings(document)))


def load_text(text: str, overrides: Iterable[str], environment: Mapping[str, str]) -> Pipeline:
    """A pipeline from a text that is no file; paths are relative to the working directory."""
    document = read_document(text, "pipeline", environment)
    for number, override in enumerate(overrides, 1):
        apply_override(document, override, number, environment)
    return _validated(document, FileContext(Path.cwd()))


def load_and_warn(path: str | Path, overrides: Iterable[str], model: type[P]) -> P:
    """Load a pipeline file as a `model`, and log its warnings."""
    loaded = load(path, overrides, model=model)
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    assert isinstance(loaded.pipeline, model)
    return loaded.pipeline


def _read(path: Path, file: str) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise PipelineFileError([Problem(file, 0, "", "larger than 1 MB; is this a pipeline file?")])
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise PipelineFileError([Problem(file, 0, "", f"no such file{_near(path)}")]) from None
    except IsADirectoryError:
        message = f"is a directory; name the pipeline file in it{_near(path)}"
        raise PipelineFileError([Problem(file, 0, "", message)]) from None
    except OSError as error:
        raise PipelineFileError([Problem(file, 0, "", f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PipelineFileError([Problem(file, line, "", "not UTF-8 text; save the file as UTF-8")]) from None


def _near(path: Path) -> str:
    """`, did you mean 'shop/shop.yaml'?` for the file that `init` may have written, or one of a near name."""
    for written in (path.with_suffix("") / path.with_suffix(".yaml").name, path.with_suffix(".yaml")):
        if written.is_file() and written != path:
            return f", did you mean '{written}'?"
    others = (file.name for file in path.parent.glob("*.y*ml"))
    return did_you_mean(path.name, (name for name in others if not name.endswith(".test.yaml")))


def _require_mapping(document: Document) -> None:
    """Without keys and values there is nothing further to look at."""
    if not isinstance(document.data, dict):
        if not document.problems:
            hint = "a pipeline file begins with `name:`, `sources:` and `tables:`"
            found = (
                "the file is empty"
                if document.data is None
                else f"expected keys and values, got {shown(document.data)}"
            )
            document.problems.append(Problem(document.file, 1, "", f"{found}; {hint}"))
        raise PipelineFileError(document.problems) from document.broken


def _validated(
    document: Document,
    context: FileContext,
    model: type[Pipeline] = Pipeline,
    lines: Lines | None = None,
) -> Pipeline:
    """The pipeline of a document; with `lines`, it knows that it is from a file."""
    found: list[FieldProblem] = []
    pipeline: Pipeline | None = None
    rest: Pipeline | None = None
    try:
        pipeline = model.model_validate(document.data, context=context, by_alias=True, by_name=False)
    except ValidationError as error:
        found += field_problems(error, document)
    for problem in consistency_problems(Outline.of_data(document.data, context)):
        found.append(FieldProblem(problem.path, scrubbed(problem.message, problem.path, document)))
    if pipeline is None and not document.problems:
        rest = _with_wrong_queries(document, context, model, found)
    for one in filter(None, (pipeline, rest)) if lines is not None else ():
        one._file, one._lines = document.file, lines or one._lines
    problems = [*document.problems, *_problems(found, document)]
    if problems or pipeline is None:
        redactor = Redactor(_secrets(document))
        shown_problems = [
            Problem(each.file, each.line, each.key, redactor.redact(each.message)) for each in problems
        ]
        raise PipelineFileError(list(dict.fromkeys(shown_problems)), rest)
    pipeline._hidden_paths = frozenset(
        path
        for path, put_in in document.substitutions.items()
        if put_in.whole and (in_option_map(path) or is_connection(path))
    )
    return pipeline


def _with_wrong_queries(
    document: Document, context: FileContext, model: type[Pipeline], found: Sequence[FieldProblem]
) -> Pipeline | None:
    """The pipeline all the same, to check the rest of it, where only names in queries are wrong."""
    if not found or not all(len(one.path) == 3 and one.path[2] == "query" for one in found):
        return None
    tables, wrong = document.data["tables"], {one.path[1] for one in found}
    fed = next((name for name, table in tables.items() if not {"query", "route"} & table.keys()), None)
    instead = {name: {**tables[name], "query": f"SELECT * FROM `{fed}`"} for name in wrong}
    try:
        pipeline = model.model_validate(
            {**document.data, "tables": {**tables, **instead}}, context=context, by_alias=True, by_name=False
        )
    except ValidationError:
        return None
    given = {
        name: table.model_copy(update={"query": tables[name]["query"]}) if name in wrong else table
        for name, table in pipeline.tables.items()
    }
    return pipeline.model_copy(update={"tables": given})


def _secrets(document: Document) -> Iterator[str]:
    """Every secret that the file holds or took from a variable; the name of an unset variable is none."""
    for path, value in scalars(document.data):
        if not isinstance(value, Unset):
            yield from secret_strings(value, path)


def _problems(found: list[FieldProblem], document: Document) -> Iterator[Problem]:
    """The problems with their lines, without those about values that are known to be broken already."""
    broken = [problem.key for problem in document.problems if problem.key]
    for problem in found:
        key = dotted(problem.path)
        if not any(key == each or key.startswith(each + ".") for each in broken):
            yield document.problem(problem.path, problem.message)


def _warnings(document: Document) -> Iterator[Problem]:
    """Secrets that are written in the file itself."""
    for path, value in scalars(document.data):
        literal = path not in document.substitutions and not isinstance(value, Unset)
        secret = value not in (None, "") and is_secret_at(path)
        if literal and (secret or (isinstance(value, str) and mask_text(value, path) != value)):
            name = str(path[-1]).upper().translate(str.maketrans(".-", "__"))
            message = f"a secret is written in the file; put it in a variable: ${{{name}}}"
            yield document.problem(path, message)
