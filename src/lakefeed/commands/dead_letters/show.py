"""`lakefeed dead-letters show`: dead letters one by one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakefeed.commands.dead_letters.letter import letter_lines, letter_records
from lakefeed.commands.dead_letters.letters_command import LettersCommand, letters_command
from lakefeed.dead_letters.find import newest_dead_letters


@letters_command
def show(
    at: LettersCommand,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most, the newest first.")] = 10,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Show dead letters one by one, with their payloads, the newest first."""
    found = letter_records(newest_dead_letters(at.tables, at.wanted, limit))
    return found, [line for one in found for line in letter_lines(one)]
