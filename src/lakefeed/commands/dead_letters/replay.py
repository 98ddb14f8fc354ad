"""`lakefeed dead-letters replay`: dead letters go through the pipeline again."""

from __future__ import annotations

from collections.abc import Iterator

from lakefeed.commands.dead_letters.dead_letters_command import DeadLettersCommand, dead_letters_command
from lakefeed.commands.options import DryRun, Yes, nothing_changed
from lakefeed.commands.output import operator, printable
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reprocess import replay as operation
from lakefeed.reprocess.resend import TableReplay
from lakefeed.sources.files.source import FilesSource
from lakefeed.text import counted


@dead_letters_command
def replay(
    at: DeadLettersCommand, yes: Yes = False, dry_run: DryRun = False
) -> tuple[list[TableReplay], list[str]]:
    """Send dead letters through the current pipeline file into their tables, exactly once."""
    only_shown = dry_run or not yes
    found, at.errors = operation.replay_each(
        at.tables.pipeline, at.wanted, who=operator(), dry_run=only_shown
    )
    if not any(one.dead_letters or one.error for one in found):
        return found, []
    pipeline = at.tables.pipeline
    lines = [line for one in found for line in [*_lines(one, only_shown), *_reading_again(pipeline, one)]]
    return found, [*lines, nothing_changed(dry_run)] if only_shown else lines


def _reading_again(pipeline: Pipeline, one: TableReplay) -> Iterator[str]:
    """What to type where the payloads themselves are wrong, as files were read with wrong options."""
    spec = pipeline.tables.get(one.table)
    sources = [pipeline.sources.get(name) for name in spec.from_] if spec and not spec.route else []
    if any(refusal.stage == "decode" for refusal in one.again) and any(
        isinstance(source, FilesSource) and source.after == "keep" for source in sources
    ):
        yield (
            "  if the files were read with the wrong format or encoding, correct it, then read them again: "
            f"lakefeed rebuild {pipeline.file_argument} --table {one.table} --yes"
        )


def _lines(one: TableReplay, only_shown: bool) -> Iterator[str]:
    if one.error:
        yield f"{one.table}: stopped, for the reason below"
        if not one.dead_letters:
            return
    again = sum(refusal.dead_letters for refusal in one.again)
    became = ("would become " if only_shown else "became ") + ("a row" if one.rows == 1 else "rows")
    failed = "would fail again" if only_shown else "failed again"
    yield f"{one.table}: {counted(one.rows, 'dead letter')} {became}, {again:,} {failed}"
    for text in one.new_columns:
        yield f"  new column {text}"
    for text in one.widened:
        yield f"  {text}"
    for refusal in one.again:
        letters = counted(refusal.dead_letters, "dead letter")
        yield f"  {refusal.stage}/{refusal.code}: {letters}, such as: {printable(refusal.example)}"
    if one.left_out:
        yield f"  {one.left_out:,} left out by the table's filter"
    if one.waiting:
        yield (
            f"  {one.waiting:,} are waiting: the table has not read up to their offsets yet; "
            "run the pipeline first"
        )
    if one.past:
        yield (
            f"  {one.past:,} are of a former table of this name and are not replayed: this table may have "
            "read their events again; `lakefeed dead-letters list` says how to discard them"
        )
    if one.without_table:
        yield (
            f"  {one.without_table:,} are waiting: the table does not exist yet; run the pipeline, which "
            "creates it, then replay them. If no event shows which columns it has, declare its `schema` first"
        )
    if one.of_no_table:
        yield (
            f"  {one.of_no_table:,} are of a route that has no table yet: discard them, and the next run "
            "reads their events again"
        )
    if one.stranded:
        yield f"  {one.stranded:,} are of a source that no longer feeds this table"
