"""`lakefeed dead-letters list`: how many dead letters there are of each kind."""

from __future__ import annotations

from lakefeed.commands.dead_letters.dead_letter import in_utc
from lakefeed.commands.dead_letters.dead_letters_command import DeadLettersCommand, dead_letters_command
from lakefeed.commands.output import printable
from lakefeed.dead_letters.find import DeadLetterSummary, summaries
from lakefeed.text import counted


@dead_letters_command
def list_(at: DeadLettersCommand) -> tuple[list[DeadLetterSummary], list[str]]:
    """Count dead letters by table, source, stage and code."""
    found = summaries(at.tables, at.wanted)
    lines = []
    for one in found:
        lines.append(
            f"{one.table} <- {one.source}  {one.stage}/{one.code}: {counted(one.letters, 'letter')}, "
            f"{in_utc(one.first)} to {in_utc(one.last)}"
        )
        lines.append(f"  such as: {printable(one.example)}")
    total = sum(one.letters for one in found)
    return found, [*lines, counted(total, "dead letter")] if total else []
