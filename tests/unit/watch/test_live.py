"""The terminal: a table that is redrawn, and lines above it that stay."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from lakefeed.engine.report import Upkept
from lakefeed.pipeline.secrets import Redactor
from lakefeed.watch.live import LiveProgress
from support.watched import WatchedRun, shop


def drawn(run: WatchedRun, height: int = 40, env: dict[str, str] | None = None) -> str:
    screen = io.StringIO()
    console = Console(file=screen, width=100, height=height, force_terminal=True, _environ=env or {})
    live = LiveProgress(run.logbook, Redactor.of(run.pipeline), console)
    console.print(live._draw())
    return screen.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_each_table_has_a_line_with_rate_rows_lag_last_commit_and_dead_letters() -> None:
    run = WatchedRun()
    run.trouble_everywhere()
    run.clock.now += 5

    lines = [re.split(r" {2,}", line.strip()) for line in plain(drawn(run)).splitlines()]

    assert lines[0] == ["table", "rows/s", "rows", "lag", "last commit", "dead letters"]
    assert lines[1] == ["clicks", "20", "100", "0", "5 s ago", "1"]
    assert lines[2] == ["orders", "20", "100", "0", "5 s ago", "0"]
    assert lines[3] == ["refunds", "200", "stopped"]
    assert lines[4] == ["source orders: broker:9092 does not answer: Connection refused; trying again"]
    assert lines[5] == ["shop", "400 rows", "40 rows/s", "lag 0", "5 commits", "1 dead letters", "5 s"]


def test_fifty_tables_fit_a_small_terminal_the_broken_and_the_late_first() -> None:
    tables = {f"t{number:02}": {"path": f"/lake/t{number}", "from": "clicks"} for number in range(50)}
    run = WatchedRun(shop(sources={"clicks": {"type": "generate"}}, tables=tables))
    run.all_is_well()
    run.tell.seen("clicks", {"0": 100})
    run.tell.reached("t33", "clicks", {"0": 1})
    run.tell.stopped("table t44", "refused")

    lines = plain(drawn(run, height=24)).splitlines()

    assert len(lines) <= 23
    assert any(line.startswith("t33 ") for line in lines)
    assert any(line.startswith("t44 ") for line in lines)
    assert "and 32 more" in "\n".join(lines)


@pytest.mark.parametrize(("env", "colours"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_off_when_asked(env: dict[str, str], colours: bool) -> None:
    run = WatchedRun()
    run.trouble_everywhere()

    text = drawn(run, env=env)

    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", text)) == colours


def test_what_stops_or_changes_stays_above_the_table_without_secrets() -> None:
    run, screen = WatchedRun(), io.StringIO()
    console = Console(file=screen, width=120, force_terminal=True)

    with LiveProgress(run.logbook, Redactor.of(run.pipeline), console) as live:
        live.stopped("source orders", "the password hunter22 is wrong")
        live.changed("clicks", "new column referrer string")
        live.upkept(Upkept("clicks", "compact", 40, 2, 1, 1, 1))

    said = plain(screen.getvalue())
    assert "source orders stopped: the password *** is wrong" in said
    assert "clicks: new column referrer string" in said
    assert "clicks: compact: 40 to 2 files" in said
