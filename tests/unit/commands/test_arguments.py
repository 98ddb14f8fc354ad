"""Arguments that several commands share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import Lakefeed
from support.dead_shop import write
from support.offline import drain


def test_what_a_run_was_set_can_be_set_for_the_commands_that_look_at_it(
    lakefeed: Lakefeed, tmp_path: Path
) -> None:
    file = write(tmp_path)
    file.write_text(file.read_text().replace("path: events", "path: elsewhere"))
    drain(file)
    write(tmp_path)
    there = ("--set", "tables.events.path=elsewhere")

    for command in (("status",), ("plan",), ("verify",), ("validate",), ("dead-letters", "list")):
        assert lakefeed(*command, file, *there)[0] == 0
    _, found, _ = lakefeed("status", file, "--json", *there)
    _, other, _ = lakefeed("status", file, "--json")

    assert json.loads(found)["tables"][0]["rows"] == 90
    assert json.loads(other)["tables"][0]["version"] is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rewind", "--table", "events"], "give either --to-version or --to-time"),
        (
            ["rewind", "--table", "events", "--to-time", "soon"],
            "--to-time: expected a time such as 2026-11-15T10:00:00Z, or 2h for two hours ago, got 'soon'",
        ),
        (["rewind", "--table", "event", "--to-version", "1"], "did you mean 'events'?"),
        (["dead-letters", "discard", "--yes"], "--reason: say why these dead letters are discarded"),
        (["dead-letters", "list", "--since", "x"], "--since: expected a time"),
    ],
)
def test_wrong_arguments_exit_with_2_and_say_what_is_wrong(
    arguments: list[str], told: str, lakefeed: Lakefeed, shop: Path
) -> None:
    handle = 2 if arguments[0] == "dead-letters" else 1

    code, _, said = lakefeed(*arguments[:handle], shop, *arguments[handle:])

    assert code == 2
    assert told in said
