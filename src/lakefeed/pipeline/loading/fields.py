"""Which model reads which part of a file."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

from pydantic.fields import FieldInfo

from lakefeed.pipeline.connectors import ConnectorOf
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Path
from lakefeed.pipeline.section import Section


def key_of(name: str, field: FieldInfo) -> str:
    """The key of a field in the file."""
    return field.validation_alias if isinstance(field.validation_alias, str) else name


def keys_of(model: type[Section]) -> list[str]:
    """The keys that a section may hold."""
    return [key_of(name, field) for name, field in model.model_fields.items()]


def section_at(path: Path, data: Any, root: type[Section] = Pipeline) -> type[Section] | None:
    """The model that reads the mapping at a path of the file, or None if no model does.

    `root` is the model of the whole.
    """
    kind: Any = root
    for step in path:
        data = data[step]
        if isinstance(kind, type) and issubclass(kind, Section):
            field = next(
                (each for name, each in kind.model_fields.items() if key_of(name, each) == step), None
            )
            kind = None if field is None else _resolved(field.rebuild_annotation(), data)
        else:
            kind = _resolved(_element(kind), data)
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def _element(annotation: Any) -> Any:
    arguments = [each for each in get_args(annotation) if each is not ...]
    return arguments[-1] if arguments else None


def _resolved(annotation: Any, data: Any) -> Any:
    """The model or container that a value is read by, looked for behind `Annotated` and `| None`."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        mark = next((each for each in marks if isinstance(each, ConnectorOf)), None)
        return mark.model_for(data) if mark else _resolved(inner, data)
    if get_origin(annotation) in (dict, list, tuple) or isinstance(annotation, type):
        return annotation
    choices = [_resolved(each, data) for each in get_args(annotation) if each is not type(None)]
    return next((each for each in choices if isinstance(each, type) and issubclass(each, Section)), None) or (
        choices[0] if choices else None
    )
