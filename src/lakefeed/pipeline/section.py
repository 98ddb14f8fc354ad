"""What all parts of the pipeline file have in common."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

from lakefeed.pipeline.secrets import for_repr


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
