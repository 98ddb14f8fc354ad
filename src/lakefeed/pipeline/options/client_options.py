"""Maps of options that are passed on as text: storage, client and Spark options, table properties."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema


def _as_text(value: Any) -> Any:
    """Numbers and booleans as the text that clients expect; everything else is left to be refused."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


OptionText = Annotated[
    str, BeforeValidator(_as_text), WithJsonSchema({"type": ["string", "number", "boolean"]})
]
"""Text; a number or a boolean of the file becomes the text that it was written as."""

Options = dict[str, OptionText]
"""Options by name; the receiver decides which names it knows."""
