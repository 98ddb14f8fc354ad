"""`lakefeed rewind`: brings a table and its positions back to an older version."""

from __future__ import annotations

from typing import Annotated

import typer

from lakefeed.commands.options import (
    DryRun,
    Json,
    Overrides,
    PipelineFile,
    ToTime,
    ToVersion,
    Yes,
    called,
    moment,
    nothing_changed,
)
from lakefeed.commands.output import opened, operator, print_report
from lakefeed.errors import UsageError
from lakefeed.figures import thousands
from lakefeed.reprocess import rewind as operation
from lakefeed.reprocess.rewind import RewindReport
from lakefeed.text import counted


def rewind(
    file: PipelineFile,
    table: Annotated[str, typer.Option("--table", help="The table to rewind, by its name in the file.")],
    to_version: ToVersion = None,
    to_time: ToTime = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    undo_others: Annotated[
        bool,
        typer.Option("--undo-others", help="Also undo commits of other writers, and deletions."),
    ] = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Take a table and its positions back to an older version.

    The next run reads the events since then again. Refused while the pipeline runs.
    """
    if (to_version is None) == (to_time is None):
        raise UsageError("give either --to-version or --to-time")
    with opened(file, overrides) as (pipeline, redactor):
        report = operation.rewind(
            pipeline,
            table,
            to_version=to_version,
            to_time=moment(to_time, "--to-time"),
            who=operator(),
            undo_others=undo_others,
            dry_run=dry_run or not yes,
        )
    lines = _lines(report, called(file, overrides), undo_others, dry_run)
    print_report(report, lines, redactor, as_json)


def _lines(report: RewindReport, pipeline: str, undo_others: bool, dry_run: bool) -> list[str]:
    done = report.version is not None
    of_time = f" of {report.to_time}" if report.to_time else ""
    lines = [
        f"{report.table}: {'rewound' if done else 'would be rewound'} from version {report.from_version} "
        f"to the content of version {report.to_version}{of_time}"
        + (f", as the new version {report.version}" if done else ""),
        f"  rows: {thousands(report.rows_now)} -> {thousands(report.rows_then)}",
    ]
    for one in report.partitions:
        noun = "offset" if one.now_place is None else "row"
        again = f"{counted(one.events, noun)} to read again" if one.events else "nothing to read again"
        now, then = one.now_place or one.now, one.then_place or one.then
        lines.append(f"  {one.partition}: next {now} -> {then}, {again}")
    if kept := report.dead_letters_kept:
        stays = "stays a dead letter" if kept == 1 else "stay dead letters"
        lines.append(
            f"  {counted(kept, 'dead letter')} of these offsets {stays}; after the next run, "
            f"`lakefeed dead-letters replay {pipeline} --table {report.table} --yes` sends them again"
        )
    if back := report.dead_letters_returned:
        become = "becomes a dead letter" if back == 1 else "become dead letters"
        lines.append(f"  {counted(back, 'replayed dead letter')} {become} again")
    if rows := report.dead_letters_replayed:
        become = "becomes a row" if rows == 1 else "become rows"
        lines.append(f"  {counted(rows, 'replayed dead letter')} {become} again")
    lines += [f"  undone: {text}" for text in report.undone]
    lines += [f"  note: {text}" for text in report.notes]
    if done:
        return lines
    last = nothing_changed(dry_run, " --undo-others" if report.undone and not undo_others else "")
    return [
        *lines,
        last.replace("To do it:", "To do it, stop the pipeline, then:") if report.running else last,
    ]
