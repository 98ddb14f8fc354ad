"""Names of data files: each is used once, by whichever task, attempt or process."""

from __future__ import annotations

import secrets
import time
import uuid
from dataclasses import dataclass


@dataclass(frozen=True)
class Serial:
    """Where a task stands in the order of all tasks of a flow; the same again when its batch is repeated."""

    batch: int = 0
    """The positions at which its batch began, added up: it grows from batch to batch and from run to run."""
    task: int = 0
    planned: int = 0
    """When the batch was planned, in microseconds since 1970; 0 where nobody has planned it."""


def file_name(prefix: str, strategy: str, number: int, serial: Serial) -> str:
    """A new name for the file with this number in its task."""
    if strategy == "serial":
        # A repeated batch, or a late attempt at a task, must never write over a file that is committed.
        attempt = secrets.token_hex(6)
        return f"{prefix}-{serial.batch:016}-{serial.task:04}-{number:05}-{attempt}.parquet"
    unique = uuid7() if strategy == "uuid7" else uuid.uuid4()
    return f"{prefix}-{number:05}-{unique}.parquet"


def uuid7() -> uuid.UUID:
    """A UUID of version 7: milliseconds since 1970, then random bits."""
    moment = time.time_ns() // 1_000_000
    bits = (moment & (2**48 - 1)) << 80 | 0x7 << 76 | secrets.randbits(12) << 64
    return uuid.UUID(int=bits | 0b10 << 62 | secrets.randbits(62))
