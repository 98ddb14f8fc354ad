"""`lakefeed files`: the ledger of a source of files: what was read when, what to read again."""

from __future__ import annotations

from lakefeed.commands.group import group

files = group(
    "files",
    __package__,
    ("list", "reload", "retry", "forget"),
    "Look at the files of a source; reload one that was corrected, read one again, or forget one.",
)
