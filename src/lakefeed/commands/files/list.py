"""`lakefeed files list`: which files were found, and what became of each."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lakefeed.commands.dead_letters.dead_letter import in_utc
from lakefeed.commands.files.options import Name, Since, SourceName, Until, wanted_files
from lakefeed.commands.options import Json, Overrides, PipelineFile
from lakefeed.commands.output import opened, print_report, printable
from lakefeed.reports.found_files import LedgerReport, found_files
from lakefeed.sources.files.known import STATES
from lakefeed.text import counted
from lakefeed.units import format_size

_STATES = ", ".join(STATES)


def list_(
    file: PipelineFile,
    source: SourceName = None,
    state: Annotated[str | None, typer.Option(help=f"Only files in this state: {_STATES}.")] = None,
    name: Name = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, help="How many files are shown, the newest of them.")] = 100,
    *,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Show the files that a source has found: when, in which state, with how many rows and dead letters."""
    wanted = wanted_files(state, name, since, until)
    with opened(file, overrides) as (pipeline, redactor):
        reports = list(found_files(pipeline, source, wanted))
    lines = [line for report in reports for line in _lines(report, limit)]
    print_report([_json(report, limit) for report in reports], lines, redactor, as_json)


def _lines(report: LedgerReport, limit: int) -> list[str]:
    shown = report.rows.slice(max(0, report.rows.num_rows - limit)).to_pylist()
    lines = [f"{report.source}  {counted(report.all, 'file')} in {report.ledger}"]
    if report.rows.num_rows > len(shown):
        lines.append(f"  the last {len(shown):,} of {report.rows.num_rows:,}; --limit shows more")
    return [*lines, *(f"  {_line(row)}" for row in shown)]


def _line(row: dict[str, Any]) -> str:
    """`12  read  shop-3.json  1,000 rows, 2 dead letters  in version 7  at 2026-11-17 ...`."""
    parts = [f"{row['number']:>4}  {row['state']:<10}  {printable(row['path'])}  {format_size(row['size'])}"]
    if row["rows"] is not None:
        letters = f", {counted(row['dead_letters'], 'dead letter')}" if row["dead_letters"] else ""
        parts.append(f"{counted(row['rows'], 'record')}{letters}")
    if row["replaces"] is not None:
        parts.append(f"replaces {row['replaces']}")
    if row["version"] is not None:
        parts.append(f"version {row['version']}")
    parts.append(f"found {in_utc(row['discovered_at'])}")
    if row["error"]:
        parts.append(f"\n        {printable(row['error'])}")
    return "  ".join(parts)


def _json(report: LedgerReport, limit: int) -> dict[str, Any]:
    rows = report.rows.slice(max(0, report.rows.num_rows - limit)).to_pylist()
    return {"source": report.source, "ledger": report.ledger, "files": report.all, "shown": rows}
