"""`lakefeed rebuild`: makes a table anew from its source."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from lakefeed.commands.options import DryRun, Json, Overrides, PipelineFile, Yes, nothing_changed
from lakefeed.commands.output import opened, operator, print_report
from lakefeed.commands.run import run_pipeline
from lakefeed.figures import thousands
from lakefeed.reprocess import rebuild as operation
from lakefeed.reprocess.rebuild import RebuildReport
from lakefeed.text import counted, listed


def rebuild(
    file: PipelineFile,
    table: Annotated[str, typer.Option("--table", help="The table to rebuild, by its name in the file.")],
    master: Annotated[
        str | None, typer.Option("--master", help="The Spark master; overrides the file's.")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Make a table anew from its source, with the SQL, schema and layout that the file has now.

    Stop the pipeline before. The old version stays readable until one commit replaces all rows. If the
    command is interrupted, the table is unchanged, and the same command continues. Refused if the source no
    longer has all events. Without --yes, it only says what it would do.
    """
    only_shown = dry_run or not yes
    run = partial(run_pipeline, once=True, master=master)
    with opened(file, overrides) as (pipeline, redactor):
        report = operation.rebuild(pipeline, table, run, who=operator(), dry_run=only_shown)
    lines = [*rebuild_lines(report), *([nothing_changed(dry_run)] if only_shown else [])]
    print_report(report, lines, redactor, as_json)


def rebuild_lines(report: RebuildReport) -> list[str]:
    """What a rebuild did, or would do, as people read it."""
    done = report.version is not None
    of_rows = f" of {counted(report.rows_now, 'row')}" if report.rows_now is not None else ""
    lines = [
        f"{report.table}: {'rebuilt' if done else 'would be rebuilt'} from {listed(report.reads)}"
        + (f", as version {report.version}" if done else "")
    ]
    if report.other_rows:
        lines.append(f"  made with other options than the file has now: {report.other_rows:,}{of_rows}")
    if report.continues:
        lines.append("  an earlier rebuild was interrupted; it is continued")
    if done:
        lines.append(f"  rows: {thousands(report.rows_now)} -> {thousands(report.rows_then)}")
        lines.append(f"  dead letters: {report.dead_letters:,}")
    return [*lines, *(f"  note: {text}" for text in report.notes)]
