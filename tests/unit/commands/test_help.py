"""`--help`, `--version` and the words of a wrong command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main

from lakefeed import __version__
from lakefeed.commands.app import app
from support.command_line import GOOD, Lakefeed


@pytest.mark.parametrize("group", [(), ("table",), ("dead-letters",)], ids=str)
def test_help_tells_each_command_with_a_whole_sentence(
    lakefeed: Lakefeed, group: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    code, out, _ = lakefeed(*group, "--help")

    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    told = " ".join(out.split())
    root = typer.main.get_command(app)
    for name in group:
        root = root.commands[name]  # type: ignore[attr-defined]
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        sentence = " ".join(command.help.split("\n\n")[0].split())
        assert f" {name} {sentence.split('. ')[0]}" in told


@pytest.mark.parametrize(
    "words", [["--help"], ["table", "--help"], ["dead-letters", "--help"], ["--version"]]
)
def test_help_of_all_commands_imports_none_of_them(words: list[str]) -> None:
    program = f"""
import sys
from lakefeed.commands.app import app
try:
    app({words!r})
except SystemExit as end:
    assert not end.code, end.code
heavy = {{"pyspark", "pyarrow", "deltalake", "lakefeed.commands.run"}}
print(*sorted(heavy & sys.modules.keys()), "end")
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)

    assert done.stdout.splitlines()[-1] == "end", done.stderr


def test_help_says_what_lakefeed_is(lakefeed: Lakefeed) -> None:
    assert "Streams events into Delta Lake tables, exactly once, on Spark." in lakefeed("--help")[1]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("demo", ["[DIRECTORY]", "--rows"]),
        ("validate", ["FILE", "The pipeline file."]),
        ("run", ["FILE", "--once", "--set", "KEY=VALUE", "--master", "--log-format", "--quiet"]),
        ("status", ["FILE", "--json", "--watch"]),
        ("schema", ["Print the JSON Schema"]),
        ("init", ["[DIR]", "--template"]),
        ("test", ["FILE", "--spark", "--json"]),
        ("doctor", ["[FILE]", "--json"]),
        ("plan", ["FILE", "--json"]),
        ("verify", ["FILE", "--deep", "--json"]),
        (
            "rewind",
            ["FILE", "--table", "--to-version", "--to-time", "--yes", "--dry-run", "--undo-others", "--json"],
        ),
        ("dead-letters", ["list", "show", "replay", "discard"]),
    ],
)
def test_help_of_a_command_tells_its_arguments(lakefeed: Lakefeed, command: str, told: list[str]) -> None:
    code, out, said = lakefeed(command, "--help")

    assert code == 0, said
    for text in told:
        assert text in out


def test_usage_names_arguments_as_the_reference_does(lakefeed: Lakefeed) -> None:
    for arguments, usage in (
        (("run",), "lakefeed run FILE [OPTIONS]"),
        (("init", "--nothing"), "lakefeed init [DIR] [OPTIONS]"),
        (("table", "history"), "lakefeed table history PATH [OPTIONS]"),
        (("dead-letters", "list"), "lakefeed dead-letters list FILE [OPTIONS]"),
    ):
        code, _, said = lakefeed(*arguments)

        # How the program was started stands before its name.
        begin, name, rest = said.splitlines()[0].partition("lakefeed ")
        assert (code, begin[:7], name + rest) == (2, "Usage: ", usage)


def test_version_is_printed(lakefeed: Lakefeed) -> None:
    assert lakefeed("--version") == (0, f"lakefeed {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["validte", "shop.yaml"], "No such command 'validte'"),
        (["validate"], "Missing argument 'FILE'"),
        (["run", "shop.yaml", "--onec"], "No such option: --onec"),
        (["run", "shop.yaml", "--set", "flush"], "flush"),
    ],
)
def test_wrong_command_line_exits_with_2_and_says_what_is_wrong(
    lakefeed: Lakefeed, arguments: list[str], told: str, pipeline_file: Callable[[str], Path]
) -> None:
    file = pipeline_file(GOOD)

    code, _, said = lakefeed(*[file if one == "shop.yaml" else one for one in arguments])

    assert code == 2
    assert told in said
    assert "Traceback" not in said
