"""The sequence of change events: a text that grows with the position of a change in its database's log.

Each connector has its own words for that position. Numbers are padded, so that texts compare as numbers do.
"""

from __future__ import annotations

import re
from typing import Any

import orjson
import pyarrow as pa

from lakefeed.columns.binlog import DIGITS, plain_position, staged_position

_NUMBER = re.compile(r"\d+")


def sequence(source: Any, moment: Any) -> str | None:
    """The sequence of one event, by its `source` and `ts_ms`; None where it has neither.

    Postgres has an LSN; MySQL and MariaDB a binlog file, a position and a row (`lakefeed.columns.binlog`);
    Oracle an SCN; SQL Server and Db2 an LSN of the change and of the commit, in texts of one length, for rows
    of a snapshot that of a commit alone; Informix the same two in numbers; Yugabyte the time of the commit,
    or the place in the log of a tablet. Others have the time of the change.
    """
    place = source if isinstance(source, dict) else {}
    if place.get("lsn") is not None:
        is_yugabyte = ":" in str(place["lsn"])
        return _of_yugabyte(place) if is_yugabyte else _in_commit(place["lsn"], _commit_before(place))
    if place.get("file") is not None and place.get("pos") is not None:
        return staged_position(place, moment) if "server_id" in place else plain_position(place)
    if place.get("scn") is not None:
        return _in_commit(place["scn"], place.get("commit_scn"))
    numbers = (place.get(name) for name in ("change_lsn", "commit_lsn"))
    lsns = [str(number) for number in numbers if number and not str(number).startswith("-")]
    if lsns and ":" not in lsns[0]:
        # A letter, as the texts of earlier releases begin with a digit and have no fixed length.
        return f"lsn:{_in_commit(lsns[0], lsns[-1])}"
    if lsns:
        commit = f"{lsns[-1]}:" if lsns[-1] > lsns[0] else ""
        return f"{commit}{lsns[0]}:{_padded(place.get('event_serial_no') or 0)}"
    time = place.get("ts_ms", moment)
    return None if time is None else f"{_padded(time)}:{_padded(place.get('ord') or 0)}"


def _in_commit(change: Any, commit: Any) -> str:
    """The number of a change, after that of a commit if the commit is newer.

    A change is sent when its transaction is committed. If that was open for long, its changes have smaller
    numbers than what was sent before: rows of a snapshot, which did not see it, for instance. The commit is
    that of the transaction or an earlier one, so that it never exceeds the numbers of later transactions.
    """
    number = _padded(change)
    newest = _padded(commit) if str(commit).isdecimal() else ""
    return f"{newest}:{number}" if newest > number else number


def _commit_before(place: dict[str, Any]) -> Any:
    """The last commit that Postgres had sent before an event, by its `sequence`; None where none is known."""
    try:
        return orjson.loads(place.get("sequence") or "")[0]
    except (ValueError, TypeError, LookupError):
        return None


def _of_yugabyte(place: dict[str, Any]) -> str:
    """The sequence of an event whose LSN is `term:index:...`, of which each tablet has its own."""
    if place.get("commit_time") is not None:
        return f"{_padded(place['commit_time'])}:{_padded(place.get('record_time') or 0)}"
    term, index, *_ = [*_NUMBER.findall(str(place["lsn"])), "0", "0"]
    return f"{_padded(term)}:{_padded(index)}"


def sequences(source: pa.Array | None, moments: pa.Array) -> pa.Array:
    """The sequence of each event."""
    positions: list[Any] = [None] * len(moments) if source is None else source.to_pylist()
    pairs = zip(positions, moments.to_pylist(), strict=True)
    return pa.array([sequence(*pair) for pair in pairs], pa.string())


def _padded(value: Any) -> str:
    """A number, or the last number in a text such as `mysql-bin.000003`, with leading zeros."""
    numbers = _NUMBER.findall(str(value))
    return numbers[-1].zfill(DIGITS) if numbers else str(value)
