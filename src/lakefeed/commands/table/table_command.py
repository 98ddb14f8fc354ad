"""Where a table command works: the table that was named, its secrets kept, and what is shown about it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lakefeed.commands.options import nothing_changed
from lakefeed.errors import TableError, UsageError

if TYPE_CHECKING:
    import pyarrow.fs as pafs

    from lakefeed.pipeline.secrets import Redactor
    from lakefeed.tables.operations.operation import Report
    from lakefeed.tables.table import LakeTable

_PIPE = 400


@dataclass
class Told:
    """A plan in words and as data. `nothing` says why there is nothing to do, if so."""

    lines: Sequence[str]
    data: dict[str, Any]
    nothing: str | None = None


@dataclass
class TableCommand:
    """One command at one table."""

    path: str
    storage: dict[str, str]
    redactor: Redactor
    as_json: bool

    @property
    def store(self) -> pafs.FileSystem:
        """The place of the table, whether or not there is one."""
        from lakefeed.stores import open_store

        return open_store(self.path, self.storage)

    def table(self) -> LakeTable:
        """The table; TableError where there is none."""
        from lakefeed.tables.table import LakeTable

        table = LakeTable.open("table", self.path, self.storage, self.store, foreign=True)
        if table is None:
            raise TableError(
                f"{self.path}: there is no Delta table.\n"
                "If Parquet files are there, lakefeed table convert makes them one."
            )
        return table

    def say(self, *lines: str) -> None:
        """Print lines, without secrets."""
        for line in lines:
            typer.echo(self.redactor.redact(line))

    def show(self, data: Any) -> None:
        """Print data as JSON, without secrets."""
        self.say(to_json(data, indent=True))

    @property
    def width(self) -> int:
        """How many characters a line has room for; a pipe takes lines of any length."""
        from rich.console import Console

        return Console().width if sys.stdout.isatty() else _PIPE

    def rows(self, names: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str] = ()) -> None:
        """Print a table for people; the columns in `left` begin at the left, all others end at the right.

        What has no room on its line goes on below; nothing is cut off.
        """
        from rich.console import Console
        from rich.table import Table

        shown = Table(box=None, pad_edge=False)
        for name in names:
            shown.add_column(name, justify="left" if name in left else "right", overflow="fold")
        for row in rows:
            shown.add_row(*(self.redactor.redact(cell) for cell in row))
        Console(width=self.width, markup=False, emoji=False, highlight=False).print(shown)

    def settle(
        self, told: Told, yes: bool, dry_run: bool, run: Callable[[], Report | dict[str, Any]]
    ) -> None:
        """Show the plan; with `yes`, carry it out and show what it has come to."""
        if not self.as_json:
            self.say(*told.lines)
        if told.nothing or dry_run or not yes:
            if self.as_json:
                self.show({"plan": told.data, "done": False})
            else:
                self.say(told.nothing or nothing_changed(dry_run))
            return
        result = run()
        if self.as_json:
            self.show({"plan": told.data, "done": True, "report": plain(result)})
        else:
            self.say(*_report_lines(result))


@contextmanager
def command(
    path: str, file: Path | None, storage: Sequence[str] | None, as_json: bool = False
) -> Iterator[TableCommand]:
    """Find the table that a command line names; errors pass without secrets."""
    from lakefeed.pipeline.secrets import Redactor, secret_strings

    given = pairs(storage or (), "--storage")
    secrets = set(secret_strings({"storage": given}))
    if file is None:
        place, options = _located(path), given
    else:
        from lakefeed.pipeline.pipeline import Pipeline

        pipeline = Pipeline.from_file(file)
        place, named = _named(pipeline, path, file)
        options = {**named, **given}
        written = pipeline.model_dump(mode="json", by_alias=True, exclude_none=True)
        secrets |= set(secret_strings(written, (), pipeline.option_paths_from_variables))
    redactor = Redactor(secrets)
    with redactor.guarding():
        yield TableCommand(place, options, redactor, as_json)


def plain(value: Any) -> Any:
    """Dataclasses as dicts, for JSON."""
    from dataclasses import asdict, is_dataclass

    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def to_json(data: Any, *, indent: bool = False) -> str:
    """JSON of whatever a table may hold: times as ISO text, decimals as text, bytes as base64."""
    import base64

    import orjson

    def other(value: Any) -> Any:
        return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)

    option = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if indent else 0)
    return orjson.dumps(data, default=other, option=option).decode()


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` arguments as a dict; UsageError for one without `=`."""
    found = {}
    for text in given:
        key, is_pair, value = text.partition("=")
        if not is_pair or not key.strip():
            raise UsageError(f"{option} expects KEY=VALUE, got {key!r}.")
        found[key.strip()] = value
    return found


def names(text: str | None) -> list[str]:
    """Column names separated by commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _located(path: str) -> str:
    from lakefeed.pipeline.options.paths import location

    try:
        return location(path, Path.cwd())
    except ValueError as error:
        raise UsageError(f"PATH: {error}") from None


def _named(pipeline: Any, name: str, file: Path) -> tuple[str, dict[str, str]]:
    if name in pipeline.tables:
        return pipeline.tables[name].path, pipeline.storage_for(name)
    if name == "dead_letters":
        return pipeline.dead_letters_path, pipeline.dead_letters_storage
    from lakefeed.text import suggestion

    raise UsageError(f"{file} has no table {name!r}{suggestion(name, [*pipeline.tables, 'dead_letters'])}")


def _report_lines(result: Report | dict[str, Any]) -> list[str]:
    if isinstance(result, dict):
        return [str(result["told"])]
    from lakefeed.text import listed

    if not result.versions:
        return ["Nothing was left to do; no version was made."]
    made = listed(str(version) for version in result.versions)
    many = result.versions if len(result.versions) <= 5 else ()
    text = f"version {made}" if many else f"versions {result.versions[0]} to {result.versions[-1]}"
    changed = f" Before: {result.before}. After: {result.after}." if result.before != result.after else ""
    return [f"Done: {text}.{changed}"]
