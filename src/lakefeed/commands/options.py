"""Options that several commands share, so that they mean the same everywhere.

A command that changes something shows what it would do. With `--yes` it does it. `--dry-run` only shows it,
also with `--yes`. Where it goes back to an older state, `--to-version` or `--to-time` says to which.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable
from inspect import Parameter, signature
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, TypeVar

import typer

from lakefeed.errors import UsageError
from lakefeed.units import parse_duration

PipelineFile = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the file: --set flush.interval=1s"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without this, only the plan is shown.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show the plan and change nothing, also with --yes.")
]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, recorded in the commit.")]
ToVersion = Annotated[int | None, typer.Option("--to-version", min=0, help="The version to go back to.")]
ToTime = Annotated[
    str | None,
    typer.Option(
        "--to-time",
        help="Go back to the newest version at that time: 2026-11-15T10:00:00Z, or 2h for two hours ago.",
    ),
]

_Value = TypeVar("_Value")


def with_options_of(
    own: Callable[..., Any], shared: Callable[..., None], without: Collection[str] = ()
) -> Callable[..., None]:
    """Make a command of two functions: `shared` takes the options that many commands have, `own` the others.

    `shared` gets the options of `own` as its `**` parameter. In the help they come after its arguments and
    before its keywords. The first parameter of `own` is no option: it is what `shared` calls it with.
    """
    kinds = signature(shared, eval_str=True).parameters.values()
    first = [one for one in kinds if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    last = [one for one in kinds if one.kind is Parameter.KEYWORD_ONLY and one.name not in without]
    _, *options = signature(own, eval_str=True).parameters.values()
    listed = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in (*first, *options, *last)]

    def command(**given: Any) -> None:
        shared(**given)

    command.__doc__ = own.__doc__
    command.__annotations__ = {}
    command.__signature__ = signature(command).replace(parameters=listed)  # type: ignore[attr-defined]
    return command


def called(file: Path, overrides: Iterable[str] | None) -> str:
    """What follows the name of another command, for it to work on the same pipeline."""
    return " ".join([quote(str(file)), *(f"--set {quote(one)}" for one in overrides or ())])


def nothing_changed(dry_run: bool, more: str = "") -> str:
    """The last line of a plan that was only shown."""
    return "Nothing was changed (--dry-run)." if dry_run else f"Nothing was changed. To do it: --yes{more}"


def moment(text: str | None, option: str) -> dt.datetime | None:
    """Read `2026-11-15`, `2026-11-15T10:00:00Z` or `2h` (ago); in UTC unless a zone is given."""
    if text is None:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
        return found if found.tzinfo else found.replace(tzinfo=dt.UTC)
    except ValueError:
        pass
    try:
        return dt.datetime.now(dt.UTC) - dt.timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option}: expected a time such as 2026-11-15T10:00:00Z, or 2h for two hours ago, got '{text}'"
        ) from None


def parsed(parse: Callable[[str], _Value], text: str | None, option: str) -> _Value | None:
    """The value of an option; UsageError names the option whose text cannot be parsed."""
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def pairs(given: Iterable[str], option: str) -> dict[str, str]:
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


Everything = Annotated[
    bool, typer.Option("--all", help="Print every line, also those that are the same for many tables.")
]
