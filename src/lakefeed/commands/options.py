"""Options that several commands share, so that they mean the same everywhere.

A command that changes something shows what it would do. With `--yes` it does it. `--dry-run` only shows it,
also beside `--yes`. Where it goes back to an older state, `--to-version` or `--to-time` says to which.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

PipelineFile = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the file: --set flush.interval=1s"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without this, only the plan is shown.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show the plan and change nothing, also with --yes.")
]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, recorded in the commit.")]
ToVersion = Annotated[int | None, typer.Option("--to-version", min=0, help="The version to go back to.")]
ToTime = Annotated[
    str | None,
    typer.Option(
        "--to-time",
        help="Go back to the newest version at that time: 2026-11-15T10:00:00Z, or 2h for two hours ago.",
    ),
]


def called(file: Path, overrides: Iterable[str] | None) -> str:
    """What follows the name of another command, for it to work on the same pipeline."""
    return " ".join([quote(str(file)), *(f"--set {quote(one)}" for one in overrides or ())])


def nothing_changed(dry_run: bool, more: str = "") -> str:
    """The last line of a plan that was only shown."""
    return "Nothing was changed (--dry-run)." if dry_run else f"Nothing was changed. To do it: --yes{more}"
