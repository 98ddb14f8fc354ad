"""What all `lakefeed dead-letters` commands do: filter options, and a line when none matches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from lakefeed.commands.options import Json, Overrides, PipelineFile, moment, with_options_of
from lakefeed.commands.output import opened, print_report
from lakefeed.dead_letters.find import DeadLetterFilter, count_dead_letters, refuse_unknown_table
from lakefeed.errors import LakefeedError, TableError, UsageError
from lakefeed.handles.tables import Tables
from lakefeed.text import counted

Table = Annotated[str | None, typer.Option("--table", help="Only dead letters of this table.")]
Source = Annotated[str | None, typer.Option("--source", help="Only dead letters of this source.")]
Stage = Annotated[
    str | None, typer.Option("--stage", help="Only dead letters of this stage, such as decode.")
]
Code = Annotated[str | None, typer.Option("--code", help="Only dead letters with this code.")]
Topic = Annotated[str | None, typer.Option("--topic", help="Only dead letters of this topic.")]
Partition = Annotated[
    str | None, typer.Option("--partition", help="Only dead letters of this partition: 0, or orders-0.")
]
Offset = Annotated[int | None, typer.Option("--offset", help="Only dead letters of this offset.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", help="Only dead letters since: 2026-11-15, 2026-11-15T10:00:00Z, or 2h for two hours ago."
    ),
]
Until = Annotated[str | None, typer.Option("--until", help="Only dead letters before: as for --since.")]


@dataclass
class DeadLettersCommand:
    """The tables of the pipeline, and which dead letters are meant."""

    tables: Tables
    wanted: DeadLetterFilter
    errors: list[LakefeedError] = field(default_factory=list)
    """Why tables have stopped, while the command did its work for the others."""


def dead_letters_command(own: Callable[..., tuple[Any, list[str]]]) -> Callable[..., None]:
    """Make a command on dead letters. `own` returns a report and its lines: none if no letter matches."""

    def shared(
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
        *,
        overrides: Overrides = None,
        as_json: Json = False,
        **options: Any,
    ) -> None:
        first, last = moment(since, "--since"), moment(until, "--until")
        topic, number = topic_and_number(topic, partition)
        wanted = DeadLetterFilter(table, source, stage, code, topic, number, offset, first, last)
        with opened(file, overrides) as (pipeline, redactor):
            tables = Tables(pipeline)
            refuse_unknown_table(tables, wanted.table)
            at = DeadLettersCommand(tables, wanted)
            report, lines = own(at, **options)
            if not lines and not as_json:
                lines = [_none_of(count_dead_letters(tables))]
        print_report(report, lines, redactor, as_json)
        with redactor.guarding():
            if at.errors:
                raise at.errors[0] if len(at.errors) == 1 else TableError("\n".join(map(str, at.errors)))

    return with_options_of(own, shared)


def topic_and_number(topic: str | None, partition: str | None) -> tuple[str | None, int | None]:
    """The parts of `orders-0`, as messages name a partition; a number alone is one of any topic."""
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


def _none_of(letters: int) -> str:
    if not letters:
        return "no dead letters"
    return f"none of {counted(letters, 'dead letter')} match" + ("es" if letters == 1 else "")
