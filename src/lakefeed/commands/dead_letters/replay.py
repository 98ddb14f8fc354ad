"""`lakefeed dead-letters replay`: dead letters go through the pipeline again."""

from __future__ import annotations

from collections.abc import Iterator

from lakefeed.commands.dead_letters.dead_letters_command import DeadLettersCommand, dead_letters_command
from lakefeed.commands.options import DryRun, Yes, nothing_changed
from lakefeed.commands.output import operator, printable
from lakefeed.reprocess import replay as operation
from lakefeed.reprocess.resend import TableReplay
from lakefeed.text import counted


@dead_letters_command
def replay(
    at: DeadLettersCommand, yes: Yes = False, dry_run: DryRun = False
) -> tuple[list[TableReplay], list[str]]:
    """Send dead letters through the current pipeline file into their tables, exactly once."""
    only_shown = dry_run or not yes
    found = operation.replay(at.tables.pipeline, at.wanted, who=operator(), dry_run=only_shown)
    if not any(one.letters for one in found):
        return found, []
    lines = [line for one in found for line in _lines(one, only_shown)]
    return found, [*lines, nothing_changed(dry_run)] if only_shown else lines


def _lines(one: TableReplay, only_shown: bool) -> Iterator[str]:
    again = sum(refusal.letters for refusal in one.again)
    became = ("would become " if only_shown else "became ") + ("a row" if one.rows == 1 else "rows")
    failed = "would fail again" if only_shown else "failed again"
    yield f"{one.table}: {counted(one.rows, 'dead letter')} {became}, {again:,} {failed}"
    for text in one.new_columns:
        yield f"  new column {text}"
    for refusal in one.again:
        letters = counted(refusal.letters, "letter")
        yield f"  {refusal.stage}/{refusal.code}: {letters}, such as: {printable(refusal.example)}"
    if one.left_out:
        yield f"  {one.left_out:,} left out by the table's filter"
    if one.waiting:
        yield (
            f"  {one.waiting:,} are waiting: the table has not read up to their offsets yet; "
            "run the pipeline first"
        )
    if one.of_no_table:
        yield (
            f"  {one.of_no_table:,} are of a route that has no table yet: discard them, and the next run "
            "reads their events again"
        )
    if one.stranded:
        yield f"  {one.stranded:,} are of a source that no longer feeds this table"
