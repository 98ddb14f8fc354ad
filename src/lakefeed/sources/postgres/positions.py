"""Positions in a Postgres table: in its changes an LSN, in its snapshot how far its rows are read.

A table has two partitions. That of its changes is named like the table, and its offset is an LSN: a change is
at the LSN of its transaction's commit. That of its rows has offsets from 0 to `ALL_ROWS`.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

ALL_ROWS = 1 << 62
"""The position in the rows of a table whose snapshot has been read."""
AGAIN = 1
"""The position before a snapshot that replaces the rows of a table."""
_ROWS = ":rows"


def partition_name(stream: str, *, rows: bool = False) -> str:
    """The partition of the changes of a table, or of its rows, without signs that mean something there."""
    return quote(stream, safe=".- $") + (_ROWS if rows else "")


def stream_of(partition: str) -> str:
    """The table that a partition is of."""
    return unquote(partition.partition(":")[0])


def is_rows(partition: str) -> bool:
    """Whether a partition is of the rows of a snapshot."""
    return partition.endswith(_ROWS)


def rows_of(partition: str) -> str:
    """The partition of the rows of a table, by that of its changes."""
    return partition + _ROWS


def changes_of(partition: str) -> str:
    """The partition of the changes of a table, by that of its rows."""
    return partition.removesuffix(_ROWS)


def lsn_text(lsn: int) -> str:
    """`0/16B3748`, as Postgres writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """The number behind `0/16B3748`."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def position_in_words(offset: int) -> str:
    """An offset of either partition as people read it."""
    if offset >= ALL_ROWS:
        return "all rows"
    # Rows that are read anew begin at 1, where no LSN is.
    return lsn_text(offset) if offset > 1 else "the beginning"
