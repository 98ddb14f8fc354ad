"""`lakefeed files reload`: the rows of files are replaced by what the files hold now."""

from __future__ import annotations

from typing import Any

from lakefeed.commands.files.files_command import FilesCommand, file_lines, files_command
from lakefeed.commands.output import operator
from lakefeed.reprocess import files
from lakefeed.reprocess.files import ReloadPlan
from lakefeed.text import counted, listed


@files_command
def reload(at: FilesCommand) -> tuple[Any, list[str]]:
    """Replace the rows of corrected files, and their dead letters, by what the files hold now.

    The next batch does it, in one commit of each table: that of a pipeline that runs, or of `lakefeed run`.
    A table that cannot replace them stops until it is made anew, by the commands that are printed.
    """
    plans = files.reload(
        at.pipeline, at.source, at.paths, who=operator(), reason=at.reason, dry_run=at.only_shown
    )
    lines = [line for plan in plans for line in _lines(plan, "would" if at.only_shown else "will")]
    anew = {one.table for plan in plans for one in plan.anew}
    if not at.only_shown and (not anew or any(plan.tables for plan in plans)):
        others = " for the other tables" if anew else ""
        again = f"lakefeed run {at.file} --once"
        lines.append(f"The next batch does it{others}, of a run that is on; without one: {again}")
    return plans, lines


def _lines(plan: ReloadPlan, will: str) -> list[str]:
    lines = file_lines(plan.source, plan.paths, f"{will} be reloaded")
    for one in plan.tables:
        letters = f" and {counted(one.dead_letters, 'dead letter')}" if one.dead_letters else ""
        lines.append(
            f"  {one.table}: {counted(one.rows, 'row')}{letters} replaced by what the file holds then"
        )
    lines += [f"  {one.why}" for one in plan.anew]
    if plan.commands:
        each = "these commands make it" if len(plan.anew) == 1 else "these commands make them"
        names = listed([one.table for one in plan.anew])
        lines.append(f"  After that, {each} anew ({names}), in this order, while the pipeline is stopped:")
        lines += [f"    {command}" for command in plan.commands]
    return [*lines, *file_lines(plan.source, plan.waiting, "will be read by the next batch anyway")]
