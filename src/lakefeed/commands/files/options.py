"""Options that the `lakefeed files` commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.options import moment
from lakefeed.errors import UsageError
from lakefeed.sources.files.filter import FileFilter
from lakefeed.sources.files.known import STATES
from lakefeed.text import suggestion

SourceName = Annotated[str | None, typer.Option("--source", help="Only this source. Left out: all of files.")]
Name = Annotated[
    str | None,
    typer.Option("--name", help="Only files of this name, or end of a path; wild cards such as *.json."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", help="Only files found since: 2026-11-15, 2026-11-15T10:00:00Z, or 2h."),
]
Until = Annotated[str | None, typer.Option("--until", help="Only files found before: as for --since.")]
Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH...", help="Files by name, or by the end of their path; wild cards such as *.json."
    ),
]


def wanted_files(state: str | None, name: str | None, since: str | None, until: str | None) -> FileFilter:
    """What the options mean."""
    if state is not None and state not in STATES:
        raise UsageError(f"--state: unknown state '{state}'{suggestion(state, STATES)}")
    return FileFilter(state, name, moment(since, "--since"), moment(until, "--until"))
