"""What all parts of the pipeline file have in common."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from lakefeed.errors import UsageError
from lakefeed.pipeline.secrets import for_repr
from lakefeed.text import shown

NAMES = WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})
SOME_NAMES = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
)
"""How a field is described to editors that is read by `as_list`; `SOME_NAMES` where there must be one."""


def as_list(value: Any) -> Any:
    """Read one text as a list of it, where several may be given."""
    return (value,) if isinstance(value, str) else value


def without_repeats(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a name that is given twice."""
    repeated = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if repeated is not None:
        raise ValueError(f"names '{repeated}' twice")
    return names


def _in_utc(value: dt.datetime) -> dt.datetime:
    return value if value.tzinfo else value.replace(tzinfo=dt.UTC)


UtcTime = Annotated[dt.datetime, AfterValidator(_in_utc)]
"""A time, in UTC unless it names a zone."""


@dataclass(frozen=True)
class Shorthand:
    """Marks a field that may be given as one of some words, each of which stands for a value."""

    meaning: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Replace the word by its value, then read that as usual."""
        return core_schema.no_info_before_validator_function(self._read, handler(source))

    def __get_pydantic_json_schema__(
        self, inner: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """A word, or what the field is otherwise."""
        return {"anyOf": [{"type": "string", "enum": list(self.meaning)}, handler(inner)]}

    def _read(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value not in self.meaning:
            words = ", ".join(self.meaning)
            one_of = f"one of {words}" if len(self.meaning) > 1 else words
            raise ValueError(f"expected {one_of}, or keys and values, got {shown(value)}")
        return self.meaning[value]


class Section(BaseModel):
    """A part of the pipeline file: frozen, closed against unknown keys, and silent about secrets.

    Its fields are declared once, with type, default and description; the loader, the JSON Schema and the
    reference page all read that declaration.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        validate_by_name=True,
        validate_by_alias=True,
    )

    if not TYPE_CHECKING:  # so that editors and type checkers know the arguments

        def __init__(self, /, **given):
            """Build it in code. Raises PipelineFileError with everything that is wrong."""
            try:
                super().__init__(**given)
            except ValidationError as error:
                # By name, as it knows all models, and only here, as it is seldom needed.
                raise import_module("lakefeed.pipeline.loading.built").refusal(
                    type(self), given, error
                ) from None

        def __setattr__(self, name, value):
            """Refuse to change a key, with what to do instead."""
            try:
                super().__setattr__(name, value)
            except ValidationError as error:
                raise UsageError(
                    f"{type(self).__name__}.{name} cannot be changed: models of a pipeline are immutable.\n"
                    "Build a new one, or load the file with the change: "
                    'Pipeline.from_file("shop.yaml", ["flush.interval=1s"])'
                ) from error

        # Parts inside others are read as ever: pydantic would call an `__init__` that is not marked so.
        __init__.__pydantic_base_init__ = True

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python counts `true` as 1; in a file it is a slip."""
        if isinstance(value, bool) and info.field_name is not None:
            annotation = cls.model_fields[info.field_name].annotation
            kinds = {annotation, *get_args(annotation)}
            if bool not in kinds and int in kinds:
                raise PydanticKnownError("int_type")
            if bool not in kinds and float in kinds:
                raise PydanticKnownError("float_type")
        return value

    def __repr_args__(self) -> Any:
        """Hide secrets: a repr ends up in logs and tracebacks."""
        for name, value in super().__repr_args__():
            yield name, for_repr(name, value)
