"""`lakefeed dead-letters discard`: dead letters are deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.dead_letters.dead_letters_command import DeadLettersCommand, dead_letters_command
from lakefeed.commands.options import DryRun, Yes, nothing_changed
from lakefeed.commands.output import operator
from lakefeed.dead_letters import discard as operation
from lakefeed.dead_letters.discard import Discard
from lakefeed.errors import UsageError
from lakefeed.text import counted


@dead_letters_command
def discard(
    at: DeadLettersCommand,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why; the commit records it with your user name.")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> tuple[Discard, list[str]]:
    """Delete dead letters for ever; needs --yes, and a --reason that the commit records."""
    why, only_shown = (reason or "").strip(), dry_run or not yes
    if yes and not why:
        raise UsageError("--reason: say why these dead letters are discarded; the commit keeps it")
    found = operation.discard(at.tables.pipeline, at.wanted, who=operator(), reason=why, dry_run=only_shown)
    if not found.dead_letters and not found.waiting:
        return found, []
    letters = counted(found.dead_letters, "dead letter")
    lines = [f"{letters} would be discarded" if only_shown else f"{letters} discarded"]
    if found.waiting:
        lines.append(
            f"{found.waiting:,} are waiting: their tables have not read up to their offsets yet; "
            "run the pipeline first"
        )
    if only_shown:
        lines.append(nothing_changed(dry_run, ' --reason "why"'))
    return found, lines
