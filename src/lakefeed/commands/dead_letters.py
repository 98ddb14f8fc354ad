"""`lakefeed dead-letters`: look at records that could not become rows, send them again, or drop them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakefeed.commands.group import Command, Group
from lakefeed.commands.options import DryRun, Json, Overrides, PipelineFile, Yes, nothing_changed

if TYPE_CHECKING:
    from lakefeed.dead_letters.discard import Discard
    from lakefeed.dead_letters.find import LetterFilter, LetterSummary
    from lakefeed.handles.tables import Tables
    from lakefeed.reprocess.replay import TableReplay

dead_letters = typer.Typer(
    name="dead-letters",
    cls=Group,
    help="Look at dead letters, send them through the pipeline again, or discard them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Table = Annotated[str | None, typer.Option("--table", help="Only letters of this table.")]
Source = Annotated[str | None, typer.Option("--source", help="Only letters of this source.")]
Stage = Annotated[str | None, typer.Option("--stage", help="Only letters of this stage, such as decode.")]
Code = Annotated[str | None, typer.Option("--code", help="Only letters with this code.")]
Topic = Annotated[str | None, typer.Option("--topic", help="Only letters of this topic.")]
Partition = Annotated[
    str | None, typer.Option("--partition", help="Only letters of this partition: 0, or orders-0.")
]
Offset = Annotated[int | None, typer.Option("--offset", help="Only letters of this offset.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", help="Only letters since: 2026-11-15, 2026-11-15T10:00:00Z, or 2h for two hours ago."
    ),
]
Until = Annotated[str | None, typer.Option("--until", help="Only letters before: as for --since.")]


@dead_letters.command("list", cls=Command)
def list_letters(
    file: PipelineFile,
    table: Table = None,
    source: Source = None,
    stage: Stage = None,
    code: Code = None,
    topic: Topic = None,
    partition: Partition = None,
    offset: Offset = None,
    since: Since = None,
    until: Until = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Count dead letters by table, source, stage and code."""
    from lakefeed.dead_letters.find import summaries

    wanted = _filter(table, source, stage, code, topic, partition, offset, since, until)
    _answer(file, overrides, wanted, lambda lake: summaries(lake, wanted), _list_lines, as_json)


@dead_letters.command("show", cls=Command)
def show(
    file: PipelineFile,
    table: Table = None,
    source: Source = None,
    stage: Stage = None,
    code: Code = None,
    topic: Topic = None,
    partition: Partition = None,
    offset: Offset = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most, the newest first.")] = 10,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Show dead letters one by one, with their payloads, the newest first."""
    from lakefeed.commands.letters import letter_lines, letter_records
    from lakefeed.dead_letters.find import newest_letters

    wanted = _filter(table, source, stage, code, topic, partition, offset, since, until)
    _answer(
        file,
        overrides,
        wanted,
        lambda lake: letter_records(newest_letters(lake, wanted, limit)),
        lambda found: [line for one in found for line in letter_lines(one)],
        as_json,
    )


@dead_letters.command("replay", cls=Command)
def replay(
    file: PipelineFile,
    table: Table = None,
    source: Source = None,
    stage: Stage = None,
    code: Code = None,
    topic: Topic = None,
    partition: Partition = None,
    offset: Offset = None,
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Send dead letters through the current pipeline file into their tables, exactly once."""
    from lakefeed.commands.output import operator
    from lakefeed.reprocess.replay import replay as send

    wanted = _filter(table, source, stage, code, topic, partition, offset, since, until)
    _answer(
        file,
        overrides,
        wanted,
        lambda lake: send(lake.pipeline, wanted, who=operator(), dry_run=dry_run or not yes),
        lambda found: _replay_lines(found, not yes, dry_run),
        as_json,
    )


@dead_letters.command("discard", cls=Command)
def discard(
    file: PipelineFile,
    table: Table = None,
    source: Source = None,
    stage: Stage = None,
    code: Code = None,
    topic: Topic = None,
    partition: Partition = None,
    offset: Offset = None,
    since: Since = None,
    until: Until = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why; the commit records it with your user name.")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Delete dead letters for ever; needs --yes, and a --reason that the commit records."""
    from lakefeed.commands.output import operator
    from lakefeed.dead_letters.discard import discard as drop
    from lakefeed.errors import UsageError

    if yes and not (reason or "").strip():
        raise UsageError("--reason: say why these dead letters are discarded; the commit keeps it")
    wanted = _filter(table, source, stage, code, topic, partition, offset, since, until)
    only_shown = dry_run or not yes
    _answer(
        file,
        overrides,
        wanted,
        lambda lake: drop(
            lake.pipeline, wanted, who=operator(), reason=(reason or "").strip(), dry_run=only_shown
        ),
        lambda found: _discard_lines(found, only_shown, dry_run),
        as_json,
    )


def _filter(
    table: str | None,
    source: str | None,
    stage: str | None,
    code: str | None,
    topic: str | None,
    partition: str | None,
    offset: int | None,
    since: str | None,
    until: str | None,
) -> LetterFilter:
    from lakefeed.commands.moments import moment
    from lakefeed.dead_letters.find import LetterFilter

    first, last = moment(since, "--since"), moment(until, "--until")
    topic, number = _topic_and_number(topic, partition)
    return LetterFilter(table, source, stage, code, topic, number, offset, first, last)


def _topic_and_number(topic: str | None, partition: str | None) -> tuple[str | None, int | None]:
    """The parts of `orders-0`, as messages name a partition; a number alone is one of any topic."""
    from lakefeed.errors import UsageError

    if partition is None:
        return topic, None
    named, _, number = partition.rpartition("-")
    if not (number.isascii() and number.isdigit()) or (named == "" and partition != number):
        raise UsageError(
            f"--partition: {partition!r} is no partition; expected a number, or a topic and a number such as "
            "orders-0"
        )
    if named and topic not in (None, named):
        raise UsageError(f"--partition {partition} is of topic {named}, but --topic is {topic}")
    return named or topic, int(number)


def _answer(
    file: Path,
    overrides: list[str] | None,
    wanted: LetterFilter,
    work: Callable[[Tables], Any],
    lines: Callable[[Any], list[str]],
    as_json: bool,
) -> None:
    """Do the work; `lines` are none where no letter was found, which is told with how many there are."""
    from lakefeed.commands.output import json_text
    from lakefeed.dead_letters.find import count_letters, refuse_unknown_table
    from lakefeed.handles.tables import Tables
    from lakefeed.pipeline.pipeline import Pipeline
    from lakefeed.pipeline.secrets import Redactor

    pipeline = Pipeline.from_file(file, overrides or ())
    redactor = Redactor.of(pipeline)
    with redactor.guarding():
        lake = Tables(pipeline)
        refuse_unknown_table(lake, wanted.table)
        found = work(lake)
        said = [] if as_json else lines(found) or [_none_of(count_letters(lake))]
    typer.echo(redactor.redact(json_text(found) if as_json else "\n".join(said)))


def _none_of(letters: int) -> str:
    from lakefeed.text import counted

    if not letters:
        return "no dead letters"
    return f"none of {counted(letters, 'dead letter')} match" + ("es" if letters == 1 else "")


def _list_lines(found: list[LetterSummary]) -> list[str]:
    from lakefeed.commands.letters import in_utc, printable
    from lakefeed.text import counted

    lines = []
    for one in found:
        lines.append(
            f"{one.table} <- {one.source}  {one.stage}/{one.code}: {counted(one.letters, 'letter')}, "
            f"{in_utc(one.first)} to {in_utc(one.last)}"
        )
        lines.append(f"  such as: {printable(one.example)}")
    total = sum(one.letters for one in found)
    return [*lines, counted(total, "dead letter")] if total else []


def _replay_lines(found: list[TableReplay], shown: bool, dry_run: bool) -> list[str]:
    from lakefeed.commands.letters import printable
    from lakefeed.text import counted

    lines = []
    for one in found if any(one.letters for one in found) else ():
        again = sum(refusal.letters for refusal in one.again)
        tried = shown or dry_run
        became = ("would become " if tried else "became ") + ("a row" if one.rows == 1 else "rows")
        failed = "would fail again" if tried else "failed again"
        lines.append(f"{one.table}: {counted(one.rows, 'dead letter')} {became}, {again:,} {failed}")
        lines += [f"  new column {text}" for text in one.new_columns]
        for refusal in one.again:
            told = printable(refusal.example)
            lines.append(
                f"  {refusal.stage}/{refusal.code}: {counted(refusal.letters, 'letter')}, such as: {told}"
            )
        if one.left_out:
            lines.append(f"  {one.left_out:,} left out by the table's filter")
        if one.waiting:
            lines.append(
                f"  {one.waiting:,} are waiting: the table has not read up to their offsets yet; "
                "run the pipeline first"
            )
        if one.of_route:
            lines.append(f"  {one.of_route:,} are of a route: discard them, then rewind a table of the route")
        if one.stranded:
            lines.append(f"  {one.stranded:,} are of a source that no longer feeds this table")
    return [*lines, *([nothing_changed(dry_run)] if lines and (shown or dry_run) else [])]


def _discard_lines(found: Discard, only_shown: bool, dry_run: bool) -> list[str]:
    from lakefeed.text import counted

    if not found.letters and not found.waiting:
        return []
    letters = counted(found.letters, "dead letter")
    lines = [f"{letters} would be discarded" if only_shown else f"{letters} discarded"]
    if found.waiting:
        lines.append(
            f"{found.waiting:,} are waiting: their tables have not read up to their offsets yet; "
            "run the pipeline first"
        )
    if only_shown:
        lines.append(nothing_changed(dry_run, ' --reason "why"'))
    return lines
