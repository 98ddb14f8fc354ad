"""`lakefeed files retry`: files are read again."""

from __future__ import annotations

from lakefeed.commands.files.options import Paths, SourceName
from lakefeed.commands.options import DryRun, Json, Overrides, PipelineFile, Reason, Yes, nothing_changed
from lakefeed.commands.output import opened, operator, print_report, printable
from lakefeed.reprocess.files import retry_or_forget
from lakefeed.text import counted, listed


def retry(
    file: PipelineFile,
    paths: Paths,
    source: SourceName = None,
    reason: Reason = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    *,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    """Let the next batch read files again, into all tables of their source; removes nothing."""
    only_shown = dry_run or not yes
    with opened(file, overrides) as (pipeline, redactor):
        plans = retry_or_forget(
            pipeline, source, paths, forget=False, who=operator(), reason=reason or "", dry_run=only_shown
        )
    lines = []
    for plan in plans:
        will = "would be" if only_shown else "will be"
        lines.append(f"{plan.source}: {counted(len(plan.paths), 'file')} {will} read again")
        lines += [f"  {printable(path)}" for path in plan.paths]
        if plan.appended_to:
            lines.append(
                f"  warning: rows of these files that are in {listed(plan.appended_to)} will be there twice. "
                "Take them out first: lakefeed rewind, or lakefeed table delete"
            )
    if only_shown:
        lines.append(nothing_changed(dry_run))
    print_report(plans, lines, redactor, as_json)
