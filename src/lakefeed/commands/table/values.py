"""Values of a table as people write them, and rows laid out by the width that there is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len

from lakefeed.commands.output import printable, to_json

_GAP = 2


def shown(value: Any) -> str:
    """A value on one line: times in ISO 8601, nested ones as JSON, bytes as text or in hexadecimal."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return printable(value)
        case dt.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case dt.date():
            return value.isoformat()
        case bytes():
            return _bytes(value)
        case dict() | list() | tuple():
            return printable(to_json(value, indent=False))
        case _:
            return str(value)


def fits(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether a table of these cells has room, each row on one line."""
    widths = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
    return sum(widths) + _GAP * (len(widths) - 1) <= width


def record(names: Sequence[str], cells: Sequence[str]) -> list[str]:
    """A row with one line for each column, whatever its length."""
    widest = max(map(len, names), default=0)
    return [f"  {name:<{widest}}  {cell}" for name, cell in zip(names, cells, strict=True)]


def _bytes(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text.isprintable() and text else f"0x{value.hex()}"
