"""`lakefeed table`: the commands that look at one Delta table and look after it, whoever wrote it."""

from __future__ import annotations

from lakefeed.commands.group import group

table = group(
    "table",
    __package__,
    (
        *("detail", "history", "files", "changes", "optimize", "vacuum", "checkpoint"),
        *("properties", "delete", "replace", "restore", "convert", "drop"),
    ),
    "Inspect and maintain one Delta table, of Lakefeed or of another engine. Starts no JVM.",
)
