"""`lakefeed dead-letters list`: how many dead letters there are of each kind."""

from __future__ import annotations

from lakefeed.commands.dead_letters.dead_letter import in_utc
from lakefeed.commands.dead_letters.dead_letters_command import DeadLettersCommand, dead_letters_command
from lakefeed.commands.output import printable
from lakefeed.dead_letters.find import DeadLetterSummary, summaries
from lakefeed.dead_letters.predecessor import past_remedy
from lakefeed.text import counted


@dead_letters_command
def list_(at: DeadLettersCommand) -> tuple[list[DeadLetterSummary], list[str]]:
    """Count dead letters by table, source, reason and column, the most frequent first, with samples."""
    found = summaries(at.tables, at.wanted)
    lines = []
    for one in found:
        column = f", column {printable(one.column)}" if one.column else ""
        lines.append(
            f"{one.table} <- {one.source}  {one.stage}/{one.code}{column}: "
            f"{counted(one.dead_letters, 'dead letter')}, {in_utc(one.first)} to {in_utc(one.last)}"
            f"{', of a former table' if one.past else ''}"
        )
        lines += [f"  such as: {printable(sample)}" for sample in one.samples]
    for table, source in dict.fromkeys((one.table, one.source) for one in found if one.past):
        until = at.tables.newest_past_letter(source, table)
        assert until is not None
        lines.append(
            f"{table} <- {source}: those up to {in_utc(until)} are of a former table of this name and are "
            "not replayed: this table may have read their events again."
        )
        lines.append(f"  {past_remedy(at.tables.pipeline.file_argument, table, until)}")
    total = sum(one.dead_letters for one in found)
    return found, [*lines, counted(total, "dead letter")] if total else []
