"""`lakefeed verify`: checks by the tables' own logs that nothing is lost and nothing is there twice."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

from lakefeed.commands.folding import fold
from lakefeed.commands.options import Json, Overrides, PipelineFile
from lakefeed.commands.output import opened, print_report
from lakefeed.reports import verify as report
from lakefeed.reports.verify import VerifiedPartition, VerifiedPipeline, VerifiedTable
from lakefeed.text import counted, few, listed


def verify(
    file: PipelineFile,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read the data too, and look for repeated events in it.")
    ] = False,
    against_source: Annotated[
        bool,
        typer.Option("--against-source", help="Compare copies of Postgres tables with the database."),
    ] = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Prove that no event is lost and none is there twice.

    Reads the tables' own logs. Each finding names version and offsets, and the exit code is 3. With
    --against-source, it also counts the rows of copies and of their Postgres tables by ranges of the key, and
    names the keys that differ.
    """
    with opened(file, overrides) as (pipeline, redactor):
        found = report.verify(pipeline, deep=deep, against_source=against_source, tell=_tell)
    print_report(found, _lines(found), redactor, as_json)
    if not found.sound:
        raise typer.Exit(3)


def _tell(text: str) -> None:
    typer.echo(text, err=True)


def _lines(found: VerifiedPipeline) -> list[str]:
    every = (*found.tables, found.dead_letters)
    noted = fold(((one.name, note) for one in every for note in one.notes), everything=False)
    shared = {note: names for names, note in noted if len(names) > 1}
    lines = [line for one in every for line in _table(one, shared)]
    lines += [f"note on {few(names)}: {note}" for note, names in shared.items()]
    lines += [f"not checked: {text}" for text in found.unchecked]
    count = sum(len(one.findings) for one in (*found.tables, found.dead_letters))
    if count:
        verdict = f"{counted(count, 'finding')}, marked with !"
    elif found.sound:
        verdict = "sound: nothing lost, nothing twice"
        compared = [one for table in found.tables for one in table.compared]
        if any(one.left_out for one in compared):
            verdict += ", and what was compared of the copies is equal to the source: see `not checked`"
        elif compared:
            verdict += ", and the copies are equal to the source"
    else:
        verdict = "no problem found, but some checks were not possible: see `not checked`"
    return [*lines, f"{found.pipeline}: {verdict}"]


def _partition(at: VerifiedPartition, name: str) -> str:
    if at.next <= at.first:
        return f"  {name}: nothing read yet, the next offset is {at.next_place or at.next}"
    handled = f", {at.settled:,} more replayed or discarded" if at.settled else ""
    offsets = f"offsets {at.first} to {at.next - 1}"
    if at.first_place:
        offsets = f"from {at.first_place} up to {at.next_place}"
    return (
        f"  {name}: {offsets}, {counted(at.read, 'event')} read, "
        f"{counted(at.dead_letters, 'dead letter')}{handled}"
    )


def _table(one: VerifiedTable, shared: Collection[str]) -> list[str]:
    """What was proved of a table, without the notes that many tables share."""
    if one.version is None:
        state = "not created yet" if not one.findings else "could not be read"
        return [f"{one.name}: {state}", *(f"  ! {finding}" for finding in one.findings)]
    rows = "rows unknown" if one.rows is None else counted(one.rows, "row")
    lines = [
        f"{one.name}: {rows} in {counted(one.files, 'file')}, versions {one.checked_from} to {one.version}"
    ]
    others = len(one.pipelines) > 1
    if others:
        lines.append(f"  fed by pipelines {listed(one.pipelines)}")
    lines += [
        _partition(at, f"{at.pipeline}/{at.partition}" if others else at.partition) for at in one.partitions
    ]
    lines += [f"  made of {name} version {version}" for name, version in one.made_of.items()]
    lines += [f"  note: {note}" for note in one.notes if note not in shared]
    lines += [f"  not checked: {text}" for text in one.unchecked]
    return lines + [f"  ! {finding}" for finding in one.findings]
