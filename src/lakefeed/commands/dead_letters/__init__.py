"""`lakefeed dead-letters`: look at events that could not become rows, send them again, or discard them."""

from __future__ import annotations

from lakefeed.commands.group import group

dead_letters = group(
    "dead-letters",
    __package__,
    ("list", "show", "replay", "discard"),
    "Look at dead letters, send them through the pipeline again, or discard them.",
)
