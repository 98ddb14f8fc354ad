"""`lakefeed verify`: checks by the tables' own logs that nothing is lost and nothing is there twice."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.options import Json, Overrides, PipelineFile
from lakefeed.commands.output import opened, print_report
from lakefeed.reports import verify as report
from lakefeed.reports.verify import VerifiedPartition, VerifiedPipeline, VerifiedTable
from lakefeed.text import counted, listed


def verify(
    file: PipelineFile,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read the data too, and look for repeated events in it.")
    ] = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Prove that no event is lost and none is there twice.

    Reads the tables' own logs. Each finding names version and offsets, and the exit code is 3.
    """
    with opened(file, overrides) as (pipeline, redactor):
        found = report.verify(pipeline, deep=deep)
    print_report(found, _lines(found), redactor, as_json)
    if not found.sound:
        raise typer.Exit(3)


def _lines(found: VerifiedPipeline) -> list[str]:
    lines = [line for one in (*found.tables, found.dead_letters) for line in _table(one)]
    count = sum(len(one.findings) for one in (*found.tables, found.dead_letters))
    if count:
        verdict = f"{counted(count, 'finding')}, marked with !"
    elif found.sound:
        verdict = "sound: nothing lost, nothing twice"
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


def _table(one: VerifiedTable) -> list[str]:
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
    lines += [f"  note: {note}" for note in one.notes]
    lines += [f"  not checked: {text}" for text in one.unchecked]
    return lines + [f"  ! {finding}" for finding in one.findings]
