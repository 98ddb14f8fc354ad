"""What all `lakefeed table` commands do: find the table, show plans and results, keep secrets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import typer
from rich.console import Console
from rich.table import Table

from lakefeed.commands.options import DryRun, Json, Reason, Yes, nothing_changed, pairs, with_options_of
from lakefeed.commands.output import operator, to_json, width
from lakefeed.commands.table.options import At, File, Storage
from lakefeed.errors import TableError, UsageError
from lakefeed.pipeline.options.paths import location
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Redactor, secret_strings, secrets_of
from lakefeed.stores import open_store
from lakefeed.tables.operations.operation import Report, operation_info
from lakefeed.tables.table import LakeTable
from lakefeed.text import listed, suggestion

_PIPE = 400


@dataclass
class PlannedChange:
    """What a command would do, for people and for programs, and how to do it.

    `nothing` says why there is nothing to do, if so.
    """

    lines: Sequence[str]
    data: dict[str, Any]
    apply: Callable[[], Report | dict[str, Any]]
    nothing: str | None = None


@dataclass
class TableCommand:
    """One command on one table."""

    path: str
    storage: dict[str, str]
    redactor: Redactor
    as_json: bool
    file: Path | None = None
    reason: str | None = None

    @property
    def store(self) -> pafs.FileSystem:
        """The store of the table, whether or not there is one."""
        return open_store(self.path, self.storage)

    @cached_property
    def table(self) -> LakeTable:
        """The table; TableError where there is none."""
        table = LakeTable.open("table", self.path, self.storage, self.store, foreign=True)
        if table is None:
            raise TableError(
                f"{self.path}: there is no Delta table.\n"
                "If Parquet files are there, lakefeed table convert makes them one."
            )
        return table

    def commit_info(self, kind: str) -> dict[str, Any]:
        """What the commit of this command records: what it did, who typed it, and why."""
        return operation_info(kind, by="command", who=operator(), reason=self.reason)

    def print(self, *lines: str) -> None:
        """Print lines, without secrets."""
        for line in lines:
            typer.echo(self.redactor.redact(line))

    def print_json(self, data: Any) -> None:
        """Print data as JSON, without secrets."""
        self.print(to_json(data))

    @property
    def width(self) -> int:
        """How many characters a line has room for."""
        return width(of_a_pipe=_PIPE) or Console().width

    def print_rows(
        self, names: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str] = ()
    ) -> None:
        """Print rows for people; the columns in `left` begin at the left, all others end at the right.

        What is too long for its line continues below; nothing is cut off.
        """
        shown = Table(box=None, pad_edge=False)
        for name in names:
            shown.add_column(name, justify="left" if name in left else "right", overflow="fold")
        for row in rows:
            shown.add_row(*(self.redactor.redact(cell) for cell in row))
        Console(width=self.width, markup=False, emoji=False, highlight=False).print(shown)

    def show_or_apply(self, change: PlannedChange, *, yes: bool, dry_run: bool) -> None:
        """Show a change; with `yes`, apply it and show the result."""
        if not self.as_json:
            self.print(*change.lines)
        if change.nothing or dry_run or not yes:
            if self.as_json:
                self.print_json({"plan": change.data, "done": False})
            else:
                self.print(change.nothing or nothing_changed(dry_run))
            return
        result = change.apply()
        if self.as_json:
            self.print_json({"plan": change.data, "done": True, "report": result})
        else:
            self.print(_result_line(result))


def table_command(own: Callable[..., None]) -> Callable[..., None]:
    """Make a command that looks at a table. `own` gets a TableCommand and the command's own options."""

    def shared(
        path: At, *, file: File = None, storage: Storage = None, as_json: Json = False, **options: Any
    ) -> None:
        with opened(path, file, storage, as_json) as at:
            own(at, **options)

    return with_options_of(own, shared)


def changing_command(
    without: Collection[str] = (),
) -> Callable[[Callable[..., PlannedChange | None]], Callable[..., None]]:
    """Make a command that changes a table: `own` plans the change, which is applied with `--yes` only.

    `own` returns None where it was only asked to show something. `without` names shared options that this
    command does not have.
    """

    def made(own: Callable[..., PlannedChange | None]) -> Callable[..., None]:
        def shared(
            path: At,
            *,
            yes: Yes = False,
            dry_run: DryRun = False,
            reason: Reason = None,
            file: File = None,
            storage: Storage = None,
            as_json: Json = False,
            **options: Any,
        ) -> None:
            with opened(path, file, storage, as_json, reason) as at:
                if change := own(at, **options):
                    at.show_or_apply(change, yes=yes, dry_run=dry_run)

        return with_options_of(own, shared, without)

    return made


@contextmanager
def opened(
    path: str, file: Path | None, storage: Sequence[str] | None, as_json: bool, reason: str | None = None
) -> Iterator[TableCommand]:
    """Find the table that a command line names; errors pass without secrets."""
    given = pairs(storage or (), "--storage")
    secrets = set(secret_strings({"storage": given}))
    if file is None:
        found, options = _located(path), given
    else:
        pipeline = Pipeline.from_file(file)
        found, of_the_file = _named(pipeline, path, file)
        options = {**of_the_file, **given}
        secrets |= set(secrets_of(pipeline))
    redactor = Redactor(secrets)
    with redactor.guarding():
        yield TableCommand(found, options, redactor, as_json, file, reason)


def _located(path: str) -> str:
    try:
        return location(path, Path.cwd())
    except ValueError as error:
        raise UsageError(f"PATH: {error}") from None


def _named(pipeline: Pipeline, name: str, file: Path) -> tuple[str, dict[str, str]]:
    if name in pipeline.tables:
        return pipeline.tables[name].path, pipeline.storage_for(name)
    if name == "dead_letters":
        return pipeline.dead_letters_path, pipeline.dead_letters_storage
    raise UsageError(f"{file} has no table {name!r}{suggestion(name, [*pipeline.tables, 'dead_letters'])}")


def _result_line(result: Report | dict[str, Any]) -> str:
    if isinstance(result, dict):
        return str(result["told"])
    if not result.versions:
        return "Nothing was left to do; no version was made."
    made = listed(str(version) for version in result.versions)
    few = len(result.versions) <= 5
    text = f"version {made}" if few else f"versions {result.versions[0]} to {result.versions[-1]}"
    changed = f" Before: {result.before}. After: {result.after}." if result.before != result.after else ""
    return f"Done: {text}.{changed}"
