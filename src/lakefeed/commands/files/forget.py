"""`lakefeed files forget`: files are no longer known, so that what lies at their path is read as new."""

from __future__ import annotations

from typing import Any

from lakefeed.commands.files.files_command import FilesCommand, files_command


@files_command
def forget(at: FilesCommand) -> tuple[Any, list[str]]:
    """Forget files: what lies at their path now, such as an overwritten file, is read as new."""
    plans, lines = at.retry_or_forget(
        forget=True,
        does="would be forgotten" if at.only_shown else "forgotten",
        what_happens="rows of these files stay in {tables}, and what lies there now comes besides",
    )
    return plans, lines if at.only_shown else [*lines, "A run reads what lies there as new files."]
