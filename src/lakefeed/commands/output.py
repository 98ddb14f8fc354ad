"""What commands print for programs, and in whose name they write."""

from __future__ import annotations

from typing import Any


def json_text(found: Any) -> str:
    """A dataclass, and all that is in it, as JSON."""
    import orjson

    return orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z).decode()


def command_account(kind: str, reason: str | None) -> dict[str, Any]:
    """What the commit of a command says about itself: what it did, who typed it, and why."""
    from lakefeed.tables.operations.operation import operation_info

    return operation_info(kind, by="command", who=operator(), reason=reason)


def operator() -> str:
    """Who typed the command: user and machine, for commits that say so."""
    import getpass
    import socket

    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return f"somebody@{socket.gethostname()}"
