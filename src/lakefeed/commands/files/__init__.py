"""`lakefeed files`: the ledger of a source of files: what was read when, what to read again."""

from __future__ import annotations

from lakefeed.commands.group import group

files = group(
    "files",
    __package__,
    ("list", "retry", "forget"),
    "Look at the files that a source has found, read one again, or forget one.",
)
