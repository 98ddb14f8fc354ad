"""What the `lakefeed files` commands that write to the ledger do: show what they would do, and do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from lakefeed.commands.files.options import Paths, SourceName
from lakefeed.commands.options import (
    DryRun,
    Json,
    Overrides,
    PipelineFile,
    Reason,
    Yes,
    called,
    nothing_changed,
    with_options_of,
)
from lakefeed.commands.output import opened, operator, print_report, printable
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reprocess.files import FilesPlan, retry_or_forget
from lakefeed.text import counted, listed


@dataclass(frozen=True)
class FilesCommand:
    """The files that are meant, and whether the command only shows what it would do."""

    pipeline: Pipeline
    source: str | None
    paths: Sequence[str]
    reason: str
    only_shown: bool
    file: str
    """The pipeline file and `--set`, as they are typed."""

    def retry_or_forget(self, *, forget: bool, does: str, what_happens: str) -> tuple[Any, list[str]]:
        """Do it; `does` is said of the files, and `what_happens` of their rows in `{tables}`."""
        plans = retry_or_forget(
            self.pipeline,
            self.source,
            self.paths,
            forget=forget,
            who=operator(),
            reason=self.reason,
            dry_run=self.only_shown,
        )
        return plans, [line for plan in plans for line in self._lines(plan, does, what_happens)]

    def _lines(self, plan: FilesPlan, does: str, what_happens: str) -> list[str]:
        lines = file_lines(plan.source, plan.paths, does)
        if plan.appended_to:
            reload = f"lakefeed files reload {self.file} {' '.join(map(quote, self.paths))}"
            warning = what_happens.format(tables=listed(plan.appended_to))
            lines.append(f"  warning: {warning}. To replace them: {reload}")
        return lines


def file_lines(source: str, paths: Sequence[str], does: str) -> list[str]:
    """`drops: 2 files would be read again`, and their paths; nothing without a file."""
    if not paths:
        return []
    return [f"{source}: {counted(len(paths), 'file')} {does}", *(f"  {printable(path)}" for path in paths)]


def files_command(own: Callable[[FilesCommand], tuple[Any, list[str]]]) -> Callable[..., None]:
    """Make a command on files. `own` returns a report and its lines."""

    def shared(
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
        only_shown = dry_run or not yes
        with opened(file, overrides) as (pipeline, redactor):
            argument = called(file, overrides)
            plans, lines = own(FilesCommand(pipeline, source, paths, reason or "", only_shown, argument))
        if only_shown:
            lines.append(nothing_changed(dry_run))
        print_report(plans, lines, redactor, as_json)

    return with_options_of(own, shared)
