"""Sources that do not answer: who only looks gives up soon and says so, a run says how long it waits."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakefeed import GaveUp, Pipeline
from lakefeed.commands.app import app
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import SourceTrouble
from lakefeed.reports import asking
from lakefeed.reports.status import status
from lakefeed.watch.log_lines import LogLines
from lakefeed.watch.state import RunState
from support.processes import free_port


def write(folder: Path, *brokers: str, more: str = "") -> Path:
    """A source for each broker, and a generated one that answers."""
    file = folder / "shop.yaml"
    sources = "".join(
        f"  events{number}: {{type: kafka, brokers: '{address}', topics: [events], format: json}}\n"
        for number, address in enumerate(brokers)
    )
    tables = "".join(
        f"  events{number}: {{path: events{number}, from: events{number}}}\n"
        for number in range(len(brokers))
    )
    file.write_text(
        f"name: shop\nsources:\n  made: {{type: generate, rows: 10}}\n{sources}"
        f"tables:\n  made: {{path: made, from: made}}\n{tables}{more}"
    )
    return file


@pytest.fixture
def closed() -> str:
    """An address where nobody listens."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def silent() -> Iterator[list[str]]:
    """Addresses that take connections and never say a word."""
    with ExitStack() as opened:
        servers = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(5)]
        yield [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]


def test_plan_says_what_does_not_answer_shows_the_rest_and_exits_with_1(tmp_path: Path, closed: str) -> None:
    file = write(tmp_path, closed)

    told = CliRunner().invoke(app, ["plan", str(file)])
    as_json = CliRunner().invoke(app, ["plan", str(file), "--json"])

    assert told.exit_code == as_json.exit_code == 1
    lines = told.stdout.splitlines()
    assert "  made 0: begins at 0, end 10, lag 10" in lines
    assert "  columns: inferred from the first events" in lines
    assert lines[-3:] == [
        f"source events0: {closed} does not answer: Connect to ipv4#{closed} failed: Connection refused",
        "The plan is incomplete: the offsets of a source that does not answer are unknown.",
        "Nothing was changed.",
    ]
    assert json.loads(as_json.stdout)["sources"]["made"] is None


def test_status_says_what_does_not_answer_shows_the_rest_and_exits_with_1(
    tmp_path: Path, closed: str
) -> None:
    told = CliRunner().invoke(app, ["status", str(write(tmp_path, closed))])

    assert told.exit_code == 1
    lines = told.stdout.splitlines()
    assert "  made <- made 0: next 0, end 10, lag 10" in lines
    assert lines[-1] == (
        f"source events0: {closed} does not answer: Connect to ipv4#{closed} failed: Connection refused"
    )


def test_status_of_sources_that_answer_exits_with_0(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["status", str(write(tmp_path))]).exit_code == 0
    assert CliRunner().invoke(app, ["plan", str(write(tmp_path))]).exit_code == 0


def test_sources_are_asked_at_the_same_time(
    tmp_path: Path, silent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PATIENCE", 4.0)
    pipeline = Pipeline.from_file(write(tmp_path, *silent))
    began = time.monotonic()

    found = status(pipeline)

    assert [name for name, trouble in found.sources.items() if trouble] == [f"events{n}" for n in range(5)]
    # One after the other, it would take 20 seconds.
    assert time.monotonic() - began < 19


def test_run_without_a_broker_says_at_once_what_it_tries_and_for_how_long(
    tmp_path: Path, closed: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = Pipeline.from_file(write(tmp_path, closed, more="give_up_after: 4s\n"))

    with caplog.at_level(logging.INFO, "lakefeed"), pytest.raises(GaveUp) as gave_up:
        run_inline(pipeline, LogLines(RunState(pipeline)).watch)

    refused = f"source events0: {closed} does not answer: Connect to ipv4#{closed} failed: Connection refused"
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said[0] == f"{refused}; trying again for 4 s more (give_up_after)"
    assert (
        str(gave_up.value)
        == f"{refused}\nGave up after 4s; the next start continues at the positions in the tables."
    )


def test_trouble_is_told_again_with_the_time_that_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Tries that are at most half a minute apart, and ten seconds long.
    tries = (0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 61.0, 101.0, 141.0)
    clock = iter((*tries, 142.0, 143.0))
    lines = LogLines(RunState(Pipeline.from_file(write(tmp_path))), clock=lambda: next(clock))

    with caplog.at_level(logging.INFO, "lakefeed"):
        for _ in tries:
            lines.watch(SourceTrouble("made", "source made: nobody answers"))
        lines.watch(SourceTrouble("made", ""))
        lines.watch(SourceTrouble("made", ""))

    said = [record.getMessage() for record in caplog.records]
    assert said == [
        *(
            f"source made: nobody answers; trying again for {left} more (give_up_after)"
            for left in ("10 min", "10 min", "9 min", "9 min", "8 min", "8 min")
        ),
        "source made: continues",
    ]
