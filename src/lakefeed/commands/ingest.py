"""`lakefeed ingest`: what kafka-delta-ingest does, with its arguments and variables, from its offsets on."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import MISSING, fields
from inspect import Parameter, signature
from typing import Annotated, Any, get_type_hints

import typer

from lakefeed.backoff import backoff
from lakefeed.commands.group import Command
from lakefeed.commands.ingest_arguments import IngestArguments
from lakefeed.commands.ingest_translation import Ingest, pipeline_of
from lakefeed.commands.options import Overrides
from lakefeed.commands.run import LogFormat, run_pipeline
from lakefeed.errors import LakefeedError
from lakefeed.pipeline.loading.load import load_text
from lakefeed.pipeline.pipeline import Pipeline

_MANY = {
    **dict.fromkeys(("-t", "--transform", "--dlq_transform"), re.compile(r"[^:=]+:(?!//)")),
    **dict.fromkeys(("-K", "--kafka_setting"), re.compile(r"[\w.\-]+=")),
}
"""Options that may be followed by several values, and how one of these begins."""

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0
"""Seconds between two looks at a table whose store is away."""


class IngestCommand(Command):
    """A command whose options may be followed by several values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse them as if the option had been repeated."""
        return super().parse_args(ctx, spread(args))


def spread(arguments: list[str]) -> list[str]:
    """Name an option that is followed by several values before each of them, as the command line wants it."""
    found: list[str] = []
    option, values = "", 0
    for argument in arguments:
        if argument in _MANY:
            option, values = argument, 0
        elif argument.startswith("-"):
            option = ""
        elif option:
            values += 1
            if values > 1:
                if _MANY[option].match(argument):
                    found.append(option)
                else:
                    option = ""
        found.append(argument)
    return found


def ingest(
    *,
    print_pipeline: Annotated[
        bool, typer.Option("--print-pipeline", help="Print the pipeline file that does the same, and exit.")
    ] = False,
    overrides: Overrides = None,
    master: Annotated[str | None, typer.Option("--master", help="The Spark master.")] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option("--log-format", help="Write log lines, as text or as JSON.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")] = False,
    **given: Any,
) -> None:
    """Do what kafka-delta-ingest does: one topic into one table, from the offsets that it has left there.

    Takes its arguments and its environment variables. Options with several values may be written as there:
    -t 'a: b' 'c: d'.
    """
    for name, variable in (("transform", "TRANSFORMS"), ("dlq_transform", "DLQ_TRANSFORMS")):
        given[name] = _or_variable(given[name], variable)
    arguments = IngestArguments(**given)
    made, pipeline = ingest_pipeline(arguments, overrides or (), only_prints=print_pipeline)
    for note in made.notes:
        typer.echo(note, err=True)
    if print_pipeline:
        _print(made)
        return
    once = arguments.ends_at_latest_offsets
    run_pipeline(pipeline, once=once, master=master, log_format=log_format, quiet=quiet)


def _with_arguments(command: Callable[..., None]) -> None:
    """Let a command take the arguments of kafka-delta-ingest before its own options."""
    hints = get_type_hints(IngestArguments, include_extras=True)
    taken = [
        Parameter(
            one.name,
            Parameter.KEYWORD_ONLY,
            annotation=hints[one.name],
            default=Parameter.empty if one.default is MISSING else one.default,
        )
        for one in fields(IngestArguments)
    ]
    own = signature(command, eval_str=True)
    options = [one for one in own.parameters.values() if one.kind is Parameter.KEYWORD_ONLY]
    command.__annotations__ = {}
    command.__signature__ = own.replace(parameters=[*taken, *options])  # type: ignore[attr-defined]


_with_arguments(ingest)


def ingest_pipeline(
    given: IngestArguments, overrides: Any = (), *, only_prints: bool = False
) -> tuple[Ingest, Pipeline]:
    """The pipeline for these arguments, as text and as model, with the partitioning that the table has.

    Where that is not to be had it raises, as a run without it would be another; whoever `only_prints` the
    file may be elsewhere, and is told.
    """
    made = pipeline_of(given, os.environ)
    variables = {**os.environ, **made.variables}
    pipeline = load_text(made.text, overrides, variables)
    try:
        partitions = _partition_columns(pipeline) if only_prints else _waited_for(pipeline)
    except LakefeedError as error:
        if not only_prints:
            raise
        why = str(error).splitlines()[0]
        made.notes.append(f"How the table is partitioned is not known, as it cannot be opened: {why}")
        return made, pipeline
    if partitions:
        made = pipeline_of(given, os.environ, partitions)
        pipeline = load_text(made.text, overrides, variables)
    return made, pipeline


def _waited_for(pipeline: Pipeline) -> list[str]:
    """The columns that the table is partitioned by, for a run, which waits for a store that is away."""
    began, failures = time.monotonic(), 0
    while True:
        try:
            return _partition_columns(pipeline)
        except LakefeedError as error:
            if not error.retryable or time.monotonic() - began > pipeline.give_up_after:
                raise
            failures += 1
            wait = backoff(failures, _FIRST_WAIT, _LONGEST_WAIT)
            typer.echo(f"{str(error).splitlines()[0]}; trying again in {wait:.0f} s", err=True)
            time.sleep(wait)


def _partition_columns(pipeline: Pipeline) -> list[str]:
    """The columns that the table is partitioned by; none where there is no table, which the run will tell."""
    from lakefeed.handles.tables import Tables

    (handle,) = Tables(pipeline).handles.values()
    found = handle.look()
    return found.partition_columns if found else []


def _print(made: Ingest) -> None:
    typer.echo(made.text, nl=False)
    if made.variables:
        names = ", ".join(made.variables)
        typer.echo(f"Set these variables before you run it: {names}", err=True)


def _or_variable(given: list[str] | None, variable: str) -> list[str]:
    """What was given, or what a variable holds: one value on each of its lines."""
    lines = os.environ.get(variable, "").splitlines()
    return given or [line for line in lines if line.strip()]
