"""One habit for what changes things: the plan without `--yes`, and the plan only with `--dry-run`."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main

from lakefeed import Pipeline
from lakefeed.commands import app as line
from lakefeed.engine.inline import run_inline
from support.delta_tables import make_old, write_table
from support.offline import drain

LOOKING = {
    "demo", "init", "run", "ingest", "validate", "plan", "status", "verify", "schema", "doctor", "test",
    "dead-letters list", "dead-letters show", "files list",
    "table detail", "table history", "table files", "table changes",
}  # fmt: skip
"""Commands that change nothing that is there already, or whose whole purpose is to write."""

CHANGING = {
    "rewind": ["{file}", "--table", "events", "--to-version", "0"],
    "rebuild": ["{file}", "--table", "events"],
    "dead-letters replay": ["{file}"],
    "dead-letters discard": ["{file}", "--reason", "why not"],
    "files retry": ["{drops}", "a.json"],
    "files forget": ["{drops}", "a.json"],
    "files reload": ["{drops}", "a.json"],
    "table optimize": ["{table}"],
    "table vacuum": ["{table}"],
    "table checkpoint": ["{table}"],
    "table properties": ["{table}", "--set", "mine=yours"],
    "table delete": ["{table}", "--where", "id = 1"],
    "table replace": ["{table}", "--where", "id = 1", "--from", "{other}"],
    "table restore": ["{table}", "--to-version", "1"],
    "table convert": ["{files}"],
    "table drop": ["{table}"],
}

OF_A_DATABASE = {"snapshot"}
"""Tried where there is one: `tests/services/test_postgres_snapshot_command.py`."""


def commands(group: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{above}{name} ")
        else:
            yield above + name, command


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


ALL = dict(commands(typer.main.get_command(line.app)))


def test_every_command_either_looks_or_has_yes_and_dry_run() -> None:
    # `run --yes` answers a question; what a run would do, `plan` shows.
    with_yes = {name for name, command in ALL.items() if "--yes" in options(command)} - {"run"}
    with_dry_run = {name for name, command in ALL.items() if "--dry-run" in options(command)}

    assert with_yes == with_dry_run == set(CHANGING) | OF_A_DATABASE
    assert set(ALL) == LOOKING | set(CHANGING) | OF_A_DATABASE


def test_what_goes_by_version_goes_by_time_too() -> None:
    for name, command in ALL.items():
        given = options(command)
        assert not given & {"--version", "--time"}, name
        for side in ("to", "from"):
            assert (f"--{side}-version" in given) == (f"--{side}-time" in given), name


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    write_table(tmp_path / "t", [{"id": [number]} for number in range(4)])
    (tmp_path / "t" / "orphan.parquet").write_bytes(b"x")
    make_old(tmp_path / "t", 30)
    (tmp_path / "files").mkdir()
    for file in (tmp_path / "files" / "a.parquet", tmp_path / "other.parquet"):
        pq.write_table(pa.table({"id": [1]}), file)
    pipeline = """\
name: shop
sources: {clicks: {type: generate, rows: 40, bad_ratio: 0.1}}
tables: {events: {path: events, from: clicks, schema: {event_id: long, event_time: TIME}}}
"""
    file = tmp_path / "shop.yaml"
    file.write_text(pipeline.replace("TIME", "timestamp(ms)"))
    drain(file, batch=20)
    file.write_text(pipeline.replace("TIME", "timestamp"))
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.json").write_text('{"id": 1}')
    drops = tmp_path / "drops.yaml"
    drops.write_text("""\
name: drops
sources: {files: {type: files, path: landing, format: json, settle: 1ms}}
tables: {rows: {path: rows, from: files, schema: {id: long}}}
""")
    run_inline(Pipeline.from_file(drops))
    return {
        "file": str(file),
        "drops": str(drops),
        "table": str(tmp_path / "t"),
        "files": str(tmp_path / "files"),
        "other": str(tmp_path / "other.parquet"),
    }


def state(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file() and ".lakefeed" not in file.parts
    }


@pytest.mark.parametrize("name", CHANGING)
def test_nothing_changes_without_yes_or_with_dry_run_and_all_say_so_alike(
    name: str,
    places: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [word.format(**places) for word in CHANGING[name]]

    def call(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", ["lakefeed", *name.split(), *words, *more])
        try:
            line.main()
        except SystemExit as end:
            assert not end.code, capsys.readouterr().err
        return capsys.readouterr().out

    before = state(tmp_path)
    shown = call()
    tried = call("--yes", "--dry-run")
    untouched = state(tmp_path)
    done = call("--yes")

    assert "Nothing was changed. To do it: --yes" in shown.splitlines()[-1]
    assert tried.splitlines()[-1] == "Nothing was changed (--dry-run)."
    assert tried.splitlines()[:-1] == shown.splitlines()[:-1]
    assert untouched == before
    assert "Nothing was changed" not in done
    assert state(tmp_path) != before
