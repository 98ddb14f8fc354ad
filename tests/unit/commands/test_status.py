"""`lakefeed status`: what is there, what is not there yet, and what does not answer."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lakefeed.commands.status import _lines
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import Redactor
from lakefeed.reports.status import PipelineStatus, TableStatus, status
from support.command_line import GOOD, Lakefeed
from support.secret_shop import SECRET, assert_no_canary


def test_status_tells_tables_that_are_not_there_yet(
    lakefeed: Lakefeed, pipeline_file: Callable[[str], Path]
) -> None:
    file = pipeline_file(GOOD)

    code, out, said = lakefeed("status", file)
    json_code, json_out, _ = lakefeed("status", file, "--json")

    assert (code, said) == (0, "")
    assert "not created yet" in out
    found = json.loads(json_out)
    assert json_code == 0
    assert found["pipeline"] == "shop"
    assert found["tables"][0]["version"] is None
    assert found["sources"] == {"clicks": None}


def test_status_that_watches_looks_again_until_it_is_interrupted(
    pipeline_file: Callable[[str], Path],
) -> None:
    command = [sys.executable, "-m", "lakefeed", "status", str(pipeline_file(GOOD)), "--watch", "--json"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        code = process.wait(120)

    assert [json.loads(line)["pipeline"] for line in lines] == ["shop", "shop"]
    assert (code, said) == (0, "")


def test_status_that_watches_ends_also_when_an_interrupt_is_swallowed(
    lakefeed: Lakefeed, pipeline_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def swallowing(pipeline: Pipeline) -> PipelineStatus:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return status(pipeline)

    monkeypatch.setattr("lakefeed.reports.status.status", swallowing)
    # A job in the background of a shell ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, out, said = lakefeed("status", pipeline_file(GOOD), "--watch", "--json")

        assert (code, out.count("\n"), said) == (0, 1, "")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_status_that_is_interrupted_ends_without_a_traceback(
    lakefeed: Lakefeed, pipeline_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lakefeed.reports.status.status", interrupted)

    code, out, said = lakefeed("status", pipeline_file(GOOD))

    assert (code, out, said) == (130, "", "")


def test_status_counts_what_a_table_that_is_not_there_yet_would_read(
    lakefeed: Lakefeed, pipeline_file: Callable[[str], Path]
) -> None:
    file = pipeline_file(GOOD)

    _, out, _ = lakefeed("status", file)

    assert "events <- clicks 0: next 0, end 10, lag 10" in out


@pytest.mark.usefixtures("canaries")
def test_status_of_what_cannot_be_reached_ends_soon_and_shows_no_secret(
    lakefeed: Lakefeed,
    pipeline_file: Callable[[str], Path],
) -> None:
    file = pipeline_file(SECRET)
    began = time.monotonic()

    code, out, said = lakefeed("status", file)
    took = time.monotonic() - began

    assert code == 1, said
    assert took < 60
    assert "127.0.0.1:9 does not answer" in out
    assert "Traceback" not in said
    assert_no_canary(out, said)


@pytest.mark.usefixtures("canaries")
def test_option_that_the_client_refuses_is_told_without_its_value_from_a_variable(
    lakefeed: Lakefeed,
    pipeline_file: Callable[[str], Path],
) -> None:
    file = pipeline_file(SECRET.replace("sasl.username: user", "broker.address.family: ${KAFKA_PASSWORD}"))

    told = [lakefeed("status", file, *more) for more in ([], ["--json"])]

    for code, out, said in told:
        assert (code, said) == (1, "")
        assert "broker.address.family" in out
        assert_no_canary(out)


def test_an_error_of_many_tables_is_printed_once_and_all_of_its_lines_below_their_names() -> None:
    text = "the replication slot is gone.\nTo read all rows again, set `on_slot_loss: snapshot`"
    tables = [TableStatus(f"t{at}", f"lake/t{at}", version=1, error=text) for at in range(6)]
    found = PipelineStatus("shop", tables, TableStatus("dead letters", "dead"), {})

    lines = list(_lines(found, Redactor(()), everything=False))
    listed = list(_lines(found, Redactor(()), everything=True))

    below = "the replication slot is gone.\n    To read all rows again, set `on_slot_loss: snapshot`"
    assert lines == [f"  t0, t1, t2 and 3 more: {below}"]
    assert listed == [f"  t0, t1, t2, t3, t4 and t5: {below}"]
