"""`lakefeed files retry`: files are read again."""

from __future__ import annotations

from typing import Any

from lakefeed.commands.files.files_command import FilesCommand, files_command


@files_command
def retry(at: FilesCommand) -> tuple[Any, list[str]]:
    """Let the next batch read files again, into all tables of their source; removes nothing."""
    return at.retry_or_forget(
        forget=False,
        does=f"{'would' if at.only_shown else 'will'} be read again",
        what_happens="rows of these files that are in {tables} will be there twice",
    )
