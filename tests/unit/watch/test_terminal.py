"""The terminal: a table that is redrawn, and lines above it that stay."""

from __future__ import annotations

import io
import re
import threading
from pathlib import Path

import pytest
from rich.console import Console

from lakefeed.commands.options import called
from lakefeed.engine.batch.refusals import Refusals, RefusedShare
from lakefeed.engine.run_events import (
    BatchDone,
    FilesCounted,
    SourceSeen,
    SourceStopped,
    SourceTrouble,
    Started,
    TableChanged,
    TableReached,
    TableStopped,
    UpkeepDone,
    all_of,
)
from lakefeed.pipeline.secrets import Redactor
from lakefeed.watch.log_lines import LogLines
from lakefeed.watch.terminal import LiveProgress
from support.screen import shown_by
from support.watched import WatchedRun, served, shop


def drawn(
    run: WatchedRun,
    height: int = 40,
    env: dict[str, str] | None = None,
    stop: threading.Event | None = None,
    waits: bool = True,
) -> str:
    screen = io.StringIO()
    console = Console(file=screen, width=100, height=height, force_terminal=True, _environ=env or {})
    live = LiveProgress(run.state, Redactor.of(run.pipeline), console, stop=stop, patience="30s", waits=waits)
    console.print(live._draw())
    return screen.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_each_table_has_a_line_with_rate_rows_lag_last_commit_and_dead_letters() -> None:
    run = WatchedRun()
    run.trouble_everywhere()
    run.clock.now += 5

    lines = [re.split(r" {2,}", line.strip()) for line in plain(drawn(run)).splitlines()]

    assert lines[0] == ["table", "rows/s", "rows", "lag", "last commit", "new dead letters"]
    assert lines[1] == ["clicks", "20", "100", "0", "5 s ago", "1"]
    assert lines[2] == ["orders", "20", "100", "?", "5 s ago", "0"]
    assert lines[3] == ["refunds", "200", "stopped"]
    refused = "source orders: broker:9092 does not answer: Connection refused"
    assert lines[4] == [f"{refused}; trying again for 10 min more"]
    assert lines[5] == ["shop", "400 rows", "80 rows/s", "lag ?", "4 commits", "1 new dead letter", "5 s"]


def test_fifty_tables_fit_a_small_terminal_the_broken_and_the_late_first() -> None:
    tables = {f"t{number:02}": {"path": f"/lake/t{number}", "from": "clicks"} for number in range(50)}
    run = WatchedRun(shop(sources={"clicks": {"type": "generate"}}, tables=tables))
    run.all_is_well()
    run.tell(SourceSeen("clicks", {"0": 100}))
    run.tell(TableReached("t33", "clicks", {"0": 1}))
    run.tell(TableStopped("t44", "refused"))

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

    with LiveProgress(run.state, Redactor.of(run.pipeline), console) as live:
        live.watch(SourceStopped("orders", "the password hunter22 is wrong"))
        live.watch(TableChanged("clicks", "new column referrer string"))
        live.watch(UpkeepDone("clicks", "compact", 40, 2, 1, 1, 1))

    said = plain(screen.getvalue())
    assert "source orders stopped: the password *** is wrong" in said
    assert "clicks: new column referrer string" in said
    assert "clicks: compact: 40 to 2 files" in said


def test_while_spark_starts_that_is_all_that_is_said() -> None:
    run = WatchedRun()
    run.clock.now += 4

    before = plain(drawn(run))
    run.tell(Started())
    after = plain(drawn(run))

    assert before == "shop  starting Spark  4 s\n"
    assert after.splitlines()[0].startswith("table ")
    assert after.splitlines()[-1] == ("shop  0 rows  0 rows/s  lag ?  0 commits  0 new dead letters  4 s")


def test_a_run_that_is_told_to_stop_says_what_it_waits_for() -> None:
    run, stop = WatchedRun(), threading.Event()
    stop.set()

    starting = plain(drawn(run, stop=stop))
    run.all_is_well()
    running = plain(drawn(run, stop=stop)).splitlines()

    assert starting == "shop  stopping as soon as Spark has started; Ctrl-C ends it at once  0 s\n"
    assert running[-2] == ("stopping, waiting for the running batch, at most 30s; Ctrl-C ends it at once")


def test_a_run_that_has_read_everything_says_that_it_waits_for_events() -> None:
    run = WatchedRun()
    run.tell(Started())
    unknown = plain(drawn(run))
    for name, table in run.pipeline.tables.items():
        for source in table.from_:
            run.tell(TableReached(name, source, {"0": 100}))
            run.tell(SourceSeen(source, {"0": 100}))
    quiet, once = plain(drawn(run)), plain(drawn(run, waits=False))
    run.tell(SourceSeen("clicks", {"0": 101}))
    one_waits = plain(drawn(run))

    assert quiet.splitlines()[-2] == "waiting for events"
    assert [text for text in (unknown, once, one_waits) if "waiting for events" in text] == []


@pytest.mark.parametrize(
    ("end", "read", "waits", "said"),
    [(100, 0, True, 1), (101, 1, True, 0), (101, 0, True, 1), (100, 0, False, 0)],
)
def test_the_log_says_once_that_a_run_begins_with_nothing_to_read(
    end: int, read: int, waits: bool, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What a source took for an event may be none, such as an empty table."""
    run = WatchedRun()
    everyone = all_of(run.state.watch, LogLines(run.state, waits=waits).watch)
    with caplog.at_level("INFO", "lakefeed"):
        everyone(TableReached("clicks", "clicks", {"0": 100}))
        everyone(SourceSeen("clicks", {"0": end}))
        if end > 100:
            everyone(TableReached("clicks", "clicks", {"0": end}))
            everyone(BatchDone("clicks", read, 0, 0.1, 0))
        for _ in range(2):
            everyone(SourceSeen("clicks", {"0": end}))

    assert caplog.text.count("source clicks: nothing to read, waiting for events") == said


def test_one_of_anything_is_not_called_by_its_plural() -> None:
    run = WatchedRun()
    run.tell(Started())
    run.commit("clicks", "clicks", rows=1)
    run.letters("clicks", "clicks", 1)
    run.clock.now += 10

    assert "shop  1 row  0 rows/s  lag ?  1 commit  1 new dead letter  10 s" in plain(drawn(run))


def test_the_last_frame_gives_way_to_what_was_done_and_where_to_look() -> None:
    run, screen = WatchedRun(), io.StringIO()
    console = Console(file=screen, width=120, force_terminal=True)

    with LiveProgress(run.state, Redactor.of(run.pipeline), console, called="shop.yaml") as live:
        run.all_is_well()
        run.letters("clicks", "clicks", 1)
        live._live.refresh()
        live.watch(TableChanged("clicks", "new column referrer string"))
        run.clock.now += 13

    assert "rows/s" in screen.getvalue()
    assert shown_by(screen.getvalue()) == [
        "clicks: new column referrer string",
        "shop: 400 rows, 1 new dead letter, 4 commits in 13 s",
        "  lakefeed status shop.yaml             rows, positions and lag of the tables",
        "  lakefeed dead-letters list shop.yaml  which records were refused, and why",
    ]


def test_terminal_page_and_metrics_mean_the_same_by_rows_commits_and_dead_letters() -> None:
    run = WatchedRun()
    run.all_is_well()
    run.letters("clicks", "clicks", 3)
    run.clock.now += 5

    terminal = plain(drawn(run)).splitlines()[-1]
    with served(run) as site:
        page, metrics = site.get().text, site.get("metrics").text
    figures = dict(re.findall(r'<b data-figure="([a-z ]+)">([^<]+)</b>', page))
    counted = {
        name: sum(
            float(line.rpartition(" ")[2])
            for line in metrics.splitlines()
            if line.startswith(f"lakefeed_{name}{{") and 'table="dead letters"' not in line
        )
        for name in ("records_written_total", "commits_total", "dead_letters_total")
    }

    assert terminal == "shop  400 rows  80 rows/s  lag 0  4 commits  3 new dead letters  5 s"
    assert (figures["rows a second"], figures["commits"], figures["new dead letters"]) == ("80/s", "4", "3")
    assert counted == {"records_written_total": 400, "commits_total": 4, "dead_letters_total": 3}


def test_terminal_log_page_dot_and_readyz_speak_of_refusals_by_one_rule(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rule, run, screen = Refusals("clicks", None), WatchedRun(), io.StringIO()
    run.all_is_well()
    said = []
    console = Console(file=screen, width=200, force_terminal=True)
    with caplog.at_level("INFO", "lakefeed"), served(run) as site:
        live = LiveProgress(run.state, Redactor.of(run.pipeline), console)
        everyone = all_of(run.state.watch, live.watch, LogLines(run.state).watch)
        for refused in (6, 12):
            run.letters("clicks", "clicks", refused)
            if told := rule.add("clicks", RefusedShare(refused + 3, refused, {"decode/bad_json": refused})):
                everyone(told)
            page = site.get().text
            dot = re.search(r'<i class="mark (\w+)"></i><b>clicks</b>', page)
            heard = (plain(screen.getvalue()), caplog.text, page, site.get("readyz").text)
            said.append((dot and dot[1], ["became dead letters" in one for one in heard]))

    assert said == [("up", [False] * 4), ("warn", [True] * 4)]
    assert all("18 of the last 24 events (75.0%) became dead letters" in one for one in heard)


def test_the_lag_of_a_silent_source_is_unknown_on_terminal_page_status_and_metrics_until_it_answers() -> None:
    run = WatchedRun()
    run.all_is_well()
    run.tell(SourceSeen("orders", {"0": 140}))

    def lags() -> tuple[str, list[str], object, int]:
        terminal = plain(drawn(run)).splitlines()[-1].split("lag ")[1].split()[0]
        with served(run) as site:
            page, metrics, status = site.get().text, site.get("metrics").text, site.get("api/status").json()
        shown = re.findall(r'data-figure="lag">([^<]+)<|data-label="lag">([^<]+)<', page)
        series = metrics.count('lakefeed_source_lag_records{partition="0",pipeline="shop",source="orders"}')
        orders = next(one for one in status["tables"] if one["name"] == "orders")
        return terminal, [figure or cell for figure, cell in shown], orders["lag"], series

    before = lags()
    run.tell(SourceTrouble("orders", "source orders: broker:9092 does not answer"))
    silent = lags()
    run.tell(SourceTrouble("orders", ""))

    assert before == ("40", ["40", "0", "40", "40"], 40, 1)
    assert silent == ("?", ["?", "0", "?", "?"], None, 0)
    assert lags() == before


def test_creation_of_a_table_is_no_commit() -> None:
    run = WatchedRun()
    run.tell(Started())
    run.tell(FilesCounted("clicks", 0, 0, 0, 0, 0, run.clock.now))
    run.clock.now += 18

    (line,) = [line for line in plain(drawn(run)).splitlines() if line.startswith("clicks ")]

    assert "ago" not in line


def test_what_has_stopped_is_named_once_and_commands_repeat_the_file_and_what_was_set() -> None:
    run = WatchedRun()
    run.all_is_well()
    screen = io.StringIO()
    console = Console(file=screen, width=200)
    asked = called(Path("my shop.yaml"), ["tables.clicks.path=/my lake", "sources.orders.options=hunter22"])

    with LiveProgress(run.state, Redactor.of(run.pipeline), console, called=asked) as live:
        live.watch(SourceStopped("orders", "source orders: gone"))

    assert "source orders stopped: gone" in plain(screen.getvalue())
    assert (
        "lakefeed status 'my shop.yaml' --set 'tables.clicks.path=/my lake' "
        "--set sources.orders.options=***  "
    ) in plain(screen.getvalue())
