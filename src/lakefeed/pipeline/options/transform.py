"""`transform`: values that are set in each event before it is decoded, by JMESPath or from where it came.

The words are those of kafka-delta-ingest, so that its transforms work here as they are.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from lakefeed.text import did_you_mean

ORIGIN_FIELDS = tuple(
    f"kafka.{name}" for name in ("partition", "offset", "topic", "timestamp", "timestamp_type")
)
"""Expressions that are no JMESPath: where an event came from."""


def path_of(target: str) -> tuple[str, ...]:
    """The way to the field that a transform sets: a dot leads into an object."""
    return tuple(target.split("."))


def _check(transforms: dict[str, str]) -> dict[str, str]:
    for target, expression in transforms.items():
        if not all(path_of(target)):
            raise ValueError(f"{target!r} is no way to a field; write `field` or `object.field`")
        if expression not in ORIGIN_FIELDS:
            near = did_you_mean(expression, ORIGIN_FIELDS) if expression.startswith("kafka.") else ""
            if near:
                raise ValueError(f"{target}: {expression!r} is nothing that Kafka tells of a message{near}")
            from lakefeed.pipeline.options.jmespath_expressions import parsed

            try:
                parsed(expression)
            except ValueError as error:
                raise ValueError(f"{target}: {error}") from None
    return transforms


Transforms = Annotated[dict[str, str], AfterValidator(_check)]
"""The fields that are set, each with the expression for its value."""
