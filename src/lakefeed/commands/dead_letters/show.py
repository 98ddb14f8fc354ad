"""`lakefeed dead-letters show`: dead letters one by one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakefeed.commands.dead_letters.dead_letter import dead_letter_lines, dead_letter_records
from lakefeed.commands.dead_letters.dead_letters_command import DeadLettersCommand, dead_letters_command
from lakefeed.dead_letters.find import newest_dead_letters


@dead_letters_command
def show(
    at: DeadLettersCommand,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most, the newest first.")] = 10,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Show dead letters one by one, with their payloads, the newest first."""
    found = dead_letter_records(newest_dead_letters(at.tables, at.wanted, limit))
    return found, [line for one in found for line in dead_letter_lines(one)]
