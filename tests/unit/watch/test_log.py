"""The log of a program that uses Lakefeed as a library."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from lakefeed.engine.run_events import SourceTrouble
from lakefeed.watch.log_lines import LogLines
from support.watched import WatchedRun

BEFORE = """
import logging
{setup}
from lakefeed.watch.log import log_by_default
log_by_default()
log_by_default()
{then}
log = logging.getLogger("lakefeed")
log.info("a line")
log.debug("a detail")
logging.getLogger("other").warning("of another")
print(len(log.handlers), len(logging.getLogger().handlers), logging.getLogger().level)
"""


def said(setup: str = "", then: str = "") -> tuple[list[str], str]:
    program = BEFORE.format(setup=setup, then=then)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stderr.splitlines(), done.stdout.strip()


def test_without_any_logging_lines_go_to_stderr_and_the_root_is_left_alone() -> None:
    lines, handlers = said()

    assert [line.partition(" ")[2] for line in lines[:1]] == ["INFO    a line"]
    assert lines[1:] == ["of another"]
    assert handlers == "1 0 30"


def test_a_program_with_its_own_logging_gets_the_lines_there_and_only_there() -> None:
    setup = "logging.basicConfig(level=logging.INFO, format='mine %(message)s')"

    assert said(setup) == (["mine a line", "mine of another"], "0 1 20")
    assert said(then=f"{setup}\nlog_by_default()") == (["mine a line", "mine of another"], "0 1 20")


def test_it_is_turned_off_by_a_handler_or_a_level() -> None:
    off = "logging.getLogger('lakefeed').addHandler(logging.NullHandler())"
    quiet = "logging.getLogger('lakefeed').setLevel(logging.WARNING)"

    assert said(off)[0] == ["of another"]
    assert said(quiet)[0] == ["of another"]


def test_a_run_that_has_ended_leaves_no_thread_that_waits_for_its_stop() -> None:
    before = {thread.ident for thread in threading.enumerate()}
    with LogLines(WatchedRun().state, stop=threading.Event()):
        (waiting,) = [thread for thread in threading.enumerate() if thread.ident not in before]

    waiting.join(120)
    assert not waiting.is_alive()


def test_a_trouble_that_goes_on_is_said_now_and_then_though_its_text_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "lakefeed")
    run = WatchedRun()
    lines = LogLines(run.state, clock=run.clock)
    for second in range(12):
        lines.watch(SourceTrouble("orders", f"waits for process 7, open for {second}.5 s"))
        run.clock.now += 1
    lines.watch(SourceTrouble("orders", "waits for a lock"))

    told = [record.getMessage().partition(";")[0] for record in caplog.records]
    assert told == [
        "waits for process 7, open for 0.5 s",
        "waits for process 7, open for 5.5 s",
        "waits for a lock",
    ]
