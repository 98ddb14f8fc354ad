"""Names of data files: each is used once, by whichever task, attempt or process."""

from __future__ import annotations

import secrets
import time
import uuid


def file_name(prefix: str, strategy: str, number: int) -> str:
    """A new name for the file with this number in its task."""
    unique = uuid7() if strategy == "uuid7" else uuid.uuid4()
    return f"{prefix}-{number:05}-{unique}.parquet"


def uuid7() -> uuid.UUID:
    """A UUID of version 7: milliseconds since 1970, then random bits."""
    moment = time.time_ns() // 1_000_000
    bits = (moment & (2**48 - 1)) << 80 | 0x7 << 76 | secrets.randbits(12) << 64
    return uuid.UUID(int=bits | 0b10 << 62 | secrets.randbits(62))
