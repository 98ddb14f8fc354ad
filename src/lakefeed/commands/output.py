"""What commands print for programs, and in whose name they write."""

from __future__ import annotations

from typing import Any


def json_text(found: Any) -> str:
    """A dataclass, and all that is in it, as JSON."""
    import orjson

    return orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z).decode()


def operator() -> str:
    """Who typed the command: user and machine, for commits that say so."""
    import getpass
    import socket

    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return f"somebody@{socket.gethostname()}"
