"""Positions in the binlog of MySQL and MariaDB, as a format stages them: with the server that they belong to.

`file:pos:row` orders the changes of one binlog only. After a failover, a restore or `RESET MASTER`, another
binlog begins at smaller numbers. So a staged position has a suffix with what identifies the binlog. The
driver replaces the suffix by a prefix with the number of the binlog (`lakefeed.tables.write.keyed.binlogs`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

DIGITS = 20
_LARGEST = 2**63 - 1
_NUMBER = re.compile(r"\d+")

STAGED = (
    rf"^(?P<text>(?P<file>\d{{{DIGITS}}}):(?P<pos>\d{{{DIGITS}}}):\d{{{DIGITS}}})"
    r"@(?P<connector>[0-9a-f]{8})@(?P<server>\d+)@(?P<transaction>\d+)@(?P<time>\d+)$"
)
"""A staged position; a file and a position of zero are those of a change that has none."""

PART_BITS = 16
"""The bits of each part of a server's identity: the base name of its files, its id, and its GTID source. The
last two are those of the origin of a change, which a replica has in its own binlog.

A part that is not known is zero.
"""
PARTS = 3
ORIGIN_BITS = 2 * PART_BITS


def staged_position(source: Mapping[str, Any], moment: Any) -> str:
    """The staged position of a change, by the `source` of its event.

    Rows of an incremental snapshot have an empty `file`: they are where they are in the stream.
    """
    time = _integer(source.get("ts_ms", moment))
    gtid = str(source.get("gtid") or "")
    # `uuid:number`, and `domain-server-number` in MariaDB.
    origin, _, number = gtid.rpartition(":" if ":" in gtid else "-")
    server = str(source.get("server_id") or "")
    base = str(source["file"]).rpartition(".")[0]
    identity = _identity(str(source.get("name") or ""), base, server, origin)
    return f"{plain_position(source)}@{identity}@{_integer(number)}@{time}"


def plain_position(source: Mapping[str, Any]) -> str:
    """`file:pos:row` with leading zeros; zeros where the file has no name."""
    name, numbers = str(source["file"]), [0, 0, 0]
    if name:
        numbers = [_last_number(name), _integer(source["pos"]), _integer(source.get("row"))]
    return ":".join(str(one).zfill(DIGITS) for one in numbers)


@lru_cache(maxsize=1024)
def _identity(connector: str, *parts: str) -> str:
    """The connector and the server as numbers; zero for what is not known."""
    known = 0
    for part in parts:
        known = known << PART_BITS | (_hash(part, PART_BITS) or 1 if part else 0)
    return f"{_hash(connector, 32):08x}@{known}"


def _hash(text: str, bits: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> (64 - bits)


def _last_number(text: str) -> int:
    numbers = _NUMBER.findall(text)
    return _integer(numbers[-1]) if numbers else 0


def _integer(value: Any) -> int:
    """A number within the limits of a long, whatever an event has there; 0 for what is none."""
    is_number = isinstance(value, int | float) or str(value or "").lstrip("-").isdecimal()
    return max(0, min(int(value), _LARGEST)) if is_number else 0
