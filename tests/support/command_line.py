"""The command line inside of the test's process: no start of an interpreter, the same words and codes."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from lakefeed.commands import app

Lakefeed = Callable[..., tuple[int, str, str]]
"""Exit code, standard output and standard error of `lakefeed` with these arguments."""

GOOD = """
    name: shop
    sources: {clicks: {type: generate, rows: 10}}
    tables: {events: {path: events, from: clicks}}
"""
"""A pipeline file that needs no service."""


def in_process(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *above: str) -> Lakefeed:
    """`lakefeed` as a function; `above` are the words that every call begins with."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lakefeed", *above, *map(str, arguments)])
        try:
            app.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
