"""What commands print for programs."""

from __future__ import annotations

from typing import Any


def json_text(found: Any) -> str:
    """A dataclass, and all that is in it, as JSON."""
    import orjson

    return orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
