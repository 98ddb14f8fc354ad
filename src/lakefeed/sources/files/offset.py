"""An offset of a source of files: the number of a file and an offset in it, as one number that grows.

The offset in a plain file of lines, or of one JSON array, is the byte at which a record begins, so that
several tasks can read one file from the middle on. In all other files it is the number of the record, from 0.
"""

from __future__ import annotations

_BITS = 32
MOST_RECORDS = 1 << _BITS
"""Records of a file that are counted: some 4 billion."""


MOST_NUMBERS = (1 << (63 - _BITS)) - 1
"""Numbers that there are: some 2 billion."""

FIRST_MARK, BEGUN_MARK = "first", "begun"
"""Marks in the log of a table: the offset at which it began, and the next offset of the ledger at that time.
What a file before the latter replaces was replaced before the table began."""


def file_start(number: int) -> int:
    """The offset before the first record of a file. Below 2**63 for some 2 billion files."""
    return number << _BITS


def file_number(offset: int) -> int:
    """The number that an offset stands at."""
    return offset >> _BITS


def numbers_of(size: int) -> int:
    """How many numbers a file takes: one, and one more for each 4 GB, so that each byte has an offset."""
    return 1 + (size >> _BITS)


def offset_text(offset: int) -> str:
    """`file 12`, or `file 12, place 500`."""
    in_file = offset & (MOST_RECORDS - 1)
    return f"file {file_number(offset):,}" + (f", place {in_file:,}" if in_file else "")
