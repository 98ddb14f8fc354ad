"""The sequence of change events: a text that grows with the position of a change in its database's log.

Each connector has its own words for that position. Numbers are padded, so that texts compare as numbers do.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

_DIGITS = 20
_NUMBER = re.compile(r"\d+")


def sequence(source: Any, moment: Any) -> str | None:
    """The sequence of one event, by its `source` and `ts_ms`; None where it has neither.

    Postgres has an LSN; MySQL and MariaDB a binlog file, a position and a row; Oracle an SCN; SQL Server an
    LSN of the change, and of the commit for rows of a snapshot. Others have the time of the change.
    """
    found = source if isinstance(source, dict) else {}
    if found.get("lsn") is not None:
        return _padded(found["lsn"])
    if found.get("file") is not None and found.get("pos") is not None:
        return f"{_padded(found['file'])}:{_padded(found['pos'])}:{_padded(found.get('row') or 0)}"
    if found.get("scn") is not None:
        return _padded(found["scn"])
    lsn = found.get("change_lsn") or found.get("commit_lsn")
    if lsn is not None:
        return f"{lsn}:{_padded(found.get('event_serial_no') or 0)}"
    time = found.get("ts_ms", moment)
    return None if time is None else f"{_padded(time)}:{_padded(found.get('ord') or 0)}"


def sequences(source: pa.Array | None, moments: pa.Array) -> pa.Array:
    """The sequence of each event."""
    positions: list[Any] = [None] * len(moments) if source is None else source.to_pylist()
    pairs = zip(positions, moments.to_pylist(), strict=True)
    return pa.array([sequence(*pair) for pair in pairs], pa.string())


def _padded(value: Any) -> str:
    """A number, or the last number in a text such as `mysql-bin.000003`, with leading zeros."""
    numbers = _NUMBER.findall(str(value))
    return numbers[-1].zfill(_DIGITS) if numbers else str(value)
