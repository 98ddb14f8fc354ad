"""What was rescued from a payload: the parts that did not fit, each under its path, as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakefeed.formats.fit.json_text import object_text, quoted
from lakefeed.formats.fit.paths import Element, Step


@dataclass(frozen=True)
class _Elements:
    """A list of which only some elements are there; null stands for the others."""

    count: int
    parts: dict[int, Part] = field(default_factory=dict)


Part = str | dict[str, "Part"] | _Elements
"""JSON text, or an object or a list of such."""

Rescued = dict[str, Part]
"""What was rescued from one payload, by path."""


def put(found: Rescued, steps: Sequence[Step], text: str) -> None:
    """Put a text at the end of its path. A text that holds others replaces them."""
    here: Any = found
    for step, next_step in zip(steps, [*steps[1:], None], strict=True):
        parts: dict[Any, Part] = here.parts if isinstance(here, _Elements) else here
        key = step.number if isinstance(step, Element) else step
        if next_step is None:
            parts[key] = text
        elif isinstance(next_step, Element):
            parts.setdefault(key, _Elements(next_step.count))
        else:
            parts.setdefault(key, {})
        here = parts[key]


def rescued_column(found: Mapping[int, Rescued], rows: Sequence[int]) -> pa.Array | None:
    """For each of these payloads the object of what was rescued from it, or null; None if all are null."""
    if not any(row in found for row in rows):
        return None
    return pa.array([_written(found[row]) if row in found else None for row in rows], pa.string())


def _written(part: Part) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, _Elements):
        texts = (_written(part.parts[at]) if at in part.parts else "null" for at in range(part.count))
        return f"[{','.join(texts)}]"
    return object_text(map(quoted, part), map(_written, part.values()))
