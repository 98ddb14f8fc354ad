"""`lakefeed files forget`: files are no longer known, so that what lies at their path is read as new."""

from __future__ import annotations

from lakefeed.commands.files.options import Paths, SourceName
from lakefeed.commands.options import DryRun, Json, Overrides, PipelineFile, Reason, Yes, nothing_changed
from lakefeed.commands.output import opened, operator, print_report, printable
from lakefeed.reprocess.files import retry_or_forget
from lakefeed.text import counted


def forget(
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
    """Forget files: what lies at their path now, such as an overwritten file, is read as new."""
    only_shown = dry_run or not yes
    with opened(file, overrides) as (pipeline, redactor):
        plans = retry_or_forget(
            pipeline, source, paths, forget=True, who=operator(), reason=reason or "", dry_run=only_shown
        )
    lines = []
    for plan in plans:
        done = "would be forgotten" if only_shown else "forgotten"
        lines.append(f"{plan.source}: {counted(len(plan.paths), 'file')} {done}")
        lines += [f"  {printable(path)}" for path in plan.paths]
    lines.append(nothing_changed(dry_run) if only_shown else "A run reads what lies there as new files.")
    print_report(plans, lines, redactor, as_json)
