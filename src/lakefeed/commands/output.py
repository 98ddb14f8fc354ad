"""What commands print, and in whose name they write."""

from __future__ import annotations

import base64
import getpass
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import typer

from lakefeed.commands.folding import fold
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Redactor
from lakefeed.text import few, pattern_of, without_name


@contextmanager
def opened(file: Path, overrides: Sequence[str] | None) -> Iterator[tuple[Pipeline, Redactor]]:
    """The pipeline of a file, and the redactor of its secrets; errors pass without secrets."""
    pipeline = Pipeline.from_file(file, overrides or ())
    redactor = Redactor.of(pipeline)
    with redactor.guarding():
        yield pipeline, redactor


def print_report(report: Any, lines: Sequence[str], redactor: Redactor, as_json: bool) -> None:
    """Print a report for programs, or its lines for people, without secrets."""
    typer.echo(redactor.redact(to_json(report) if as_json else "\n".join(lines)))


def to_json(data: Any, *, indent: bool = True) -> str:
    """JSON of dataclasses and of whatever a table may hold.

    Times are ISO text, decimals are text, bytes are base64.
    """
    option = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if indent else 0)
    return orjson.dumps(data, default=_other, option=option).decode()


def _other(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def printable(text: str) -> str:
    """Text that cannot drive a terminal: what is not printable is escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def width(of_a_pipe: int = 200) -> int | None:
    """The width of what is printed: the terminal's. A pipe takes lines of any length."""
    return None if sys.stdout.isatty() else of_a_pipe


def operator() -> str:
    """Who typed the command: user and machine, for commits that say so."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return f"somebody@{socket.gethostname()}"


def skipped_lines(skipped: Mapping[str, Mapping[str, str]], *, everything: bool) -> list[str]:
    """A line for each stream that is not read, by source, with why and what to do about it.

    What is the same for many streams is one line.
    """
    lines = []
    for source, streams in skipped.items():
        words = {
            stream: ". ".join(line.rstrip(".") for line in without_name(stream, text).splitlines())
            for stream, text in sorted(streams.items())
        }
        named = ((stream, pattern_of(stream, text)) for stream, text in words.items())
        for names, pattern in fold(named, everything=everything):
            each = "; `--all` shows that of each" if "*" in pattern else ""
            text = words[names[0]] if len(names) == 1 else f"{pattern}{each}"
            lines.append(f"{source}: skips {few(names)}: {text}")
    return lines
