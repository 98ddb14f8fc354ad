"""A real run that is looked at while it runs, by a browser, by Prometheus and by whoever reads its log."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from deltalake import DeltaTable, write_deltalake
from playwright.sync_api import Browser, expect
from prometheus_client.parser import text_string_to_metric_families

from lakefeed import Pipeline, TableError
from lakefeed.commands.demo import demo
from lakefeed.commands.rebuild import rebuild
from lakefeed.commands.run import LogFormat, run_pipeline
from lakefeed.commands.run import run as run_command
from lakefeed.run import run
from support.processes import free_port, wait_until
from support.screen import shown_by
from support.watched import Site

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """A command sets up the log and the signals of its process, which here is that of all tests."""
    log, kafka = logging.getLogger("lakefeed"), logging.getLogger("lakefeed.kafka")
    before = (log.handlers[:], log.propagate, log.level, kafka.level)
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    log.handlers[:], log.propagate = before[0], before[1]
    log.setLevel(before[2])
    kafka.setLevel(before[3])
    for number, handler in signals.items():
        signal.signal(number, handler)


@contextmanager
def running(pipeline: Pipeline) -> Iterator[tuple[Site, list[BaseException]]]:
    """The pipeline in a thread, stopped at the end; gives where it is looked at, and what it ended with."""
    stop, ended = threading.Event(), list[BaseException]()

    def target() -> None:
        try:
            run(pipeline, stop=stop)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    try:
        assert pipeline.http is not None
        yield Site(f"http://{pipeline.http.listen}/"), ended
    finally:
        stop.set()
        thread.join(120)
        assert not thread.is_alive()


def total(text: str, name: str) -> float:
    families = text_string_to_metric_families(text)
    return sum(one.value for family in families for one in family.samples if one.name == name)


def test_the_page_of_a_run_with_a_stopped_broker_a_refused_table_and_bad_records_tells_all_three(
    tmp_path: Path, browser: Browser
) -> None:
    write_deltalake(tmp_path / "refunds", pa.table({"event_id": [1], "day": ["x"]}), partition_by=["day"])
    gone = f"127.0.0.1:{free_port()}"
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: generate, rate: 2000, bad_ratio: 0.1, partitions: 2}}
  orders: {{type: kafka, brokers: "{gone}", topics: [orders], format: json}}
tables:
  clicks: {{path: clicks, from: clicks}}
  refunds: {{path: refunds, from: clicks}}
  orders: {{path: orders, from: orders}}
flush: {{interval: 500ms}}
http: {{listen: "127.0.0.1:{free_port()}"}}
"""
    )

    with running(Pipeline.from_file(file)) as (site, ended):
        page = browser.new_page()
        wait_until(lambda: _answers(site), 120, lambda: f"nothing is served: {ended}")
        page.goto(site.address)
        expect(page.locator(".concern")).to_have_count(3, timeout=120_000)
        expect(page.locator("#table-clicks [data-label=files]")).to_contain_text("small", timeout=120_000)
        said = page.locator(".concerns").inner_text()
        letters = page.locator("#letters").inner_text()
        ready = site.get("readyz")
        status = site.get("api/status").json()
        page.close()
        while_running = site.get("metrics").text

    assert f"{gone} does not answer" in said
    assert f"{tmp_path / 'refunds'} is partitioned by ['day'], the pipeline file says nothing" in said
    assert re.search(r"of the last [\d,]+ events \(\d+\.\d%\) became dead letters, most often bad_json", said)
    assert "bad_json" in letters
    assert ready.code == 503
    assert [line.split(":")[0] for line in ready.text.splitlines()] == [
        "source orders",
        "table refunds",
        "table clicks",
    ]
    assert status["tables"][0]["offsets"]["clicks"].keys() == {"0", "1"}
    assert (
        0
        < total(while_running, "lakefeed_records_written_total")
        <= _rows(tmp_path / "clicks") + _rows(tmp_path / "shop_dead_letters")
    )
    assert [type(error) for error in ended] == [TableError]
    assert ended[0].reported  # type: ignore[attr-defined]


def _answers(site: Site) -> bool:
    try:
        return site.get("healthz").code == 200
    except OSError:
        return False


def _rows(table: Path) -> int:
    adds: Any = pa.table(DeltaTable(table).get_add_actions(flatten=True))
    return sum(adds.column("num_records").to_pylist())


def shop(folder: Path, more: str = "") -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 1000, bad_ratio: 0.01}}}}
tables: {{events: {{path: events, from: clicks}}}}
{more}
"""
    )
    return Pipeline.from_file(file)


def test_log_lines_in_json_have_figures_as_fields(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run_pipeline(shop(tmp_path), once=True, log_format=LogFormat.json)

    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]

    (rows,) = [line for line in lines if line.get("event") == "committed" and line["table"] == "events"]
    assert (rows["rows"], rows["dead_letters"], rows["version"], rows["level"]) == (990, 10, 1, "info")
    assert rows["message"].startswith("events: version 1: 990 rows in 1 file")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", rows["time"])


def test_quiet_says_nothing_unless_something_is_wrong_and_says_it_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_pipeline(shop(tmp_path), once=True, quiet=True)
    quiet = capfd.readouterr()
    other = shop(tmp_path)
    changed = other.model_copy(
        update={
            "tables": {"events": other.tables["events"].model_copy(update={"partition_by": ("event_type",)})}
        }
    )

    with pytest.raises(TableError) as refused:
        run_pipeline(changed, once=True, quiet=True)

    assert (quiet.out, quiet.err) == ("", "")
    said = capfd.readouterr().err
    assert said.count("is partitioned by nothing, the pipeline file says ['event_type']") == 1
    assert "ERROR   table events stopped: " in said
    assert refused.value.reported


def test_a_run_with_new_dead_letters_writes_its_rows_and_exits_with_3_where_that_is_asked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shop(tmp_path)
    file = tmp_path / "shop.yaml"

    with pytest.raises(typer.Exit) as ended:
        run_command(file, once=True, quiet=True, fail_on_dead_letters=True)
    run_command(file, once=True, quiet=True, fail_on_dead_letters=True)

    assert ended.value.exit_code == 3
    assert DeltaTable(tmp_path / "events").to_pyarrow_table().num_rows == 990
    assert capfd.readouterr().err.count("10 new dead letters, and --fail-on-dead-letters is given") == 1


def test_the_rebuild_command_runs_on_spark_and_says_what_it_did(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.yaml"
    run_pipeline(shop(tmp_path), once=True, quiet=True)
    file.write_text(file.read_text().replace("from: clicks", "from: clicks, where: event_id < 500"))

    rebuild(file, "events")
    shown = capfd.readouterr().out
    rebuild(file, "events", yes=True)
    done = capfd.readouterr().out
    rebuild(file, "events", as_json=True)
    report = json.loads(capfd.readouterr().out)

    kept = DeltaTable(tmp_path / "events").to_pyarrow_table().num_rows
    assert "would be rebuilt from clicks" in shown and shown.endswith(
        "Nothing was changed. To do it: --yes\n"
    )
    assert f"  rows: 990 -> {kept}\n" in done
    assert 400 < kept < 500
    assert (report["table"], report["rows_now"], report["version"]) == ("events", kept, None)


def test_the_demo_shows_its_page_whatever_else_listens(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    demo(tmp_path / "demo", rows=1000)

    shown = capfd.readouterr()
    assert re.search(r"the page is at http://127\.0\.0\.1:\d+/\n", shown.err)
    assert "999 rows in 3 files" in shown.out
    assert "1 dead letter, each with its bytes and the reason" in shown.out


def test_a_terminal_shows_the_start_the_stop_and_what_was_done(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        """\
name: shop
sources: {clicks: {type: generate, rate: 500, bad_ratio: 0.01}}
tables: {events: {path: events, from: clicks}}
flush: {interval: 500ms}
"""
    )
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lakefeed", "run", "shop.yaml"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200", "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    sent: list[str] = []

    def listen() -> None:
        try:
            while piece := os.read(ours, 65536):
                sent.append(piece.decode(errors="replace"))
        except OSError:  # the other end is closed
            return

    ears = threading.Thread(target=listen, daemon=True)
    ears.start()
    try:
        wait_until(lambda: "starting Spark" in "".join(sent), 120, lambda: "".join(sent)[-2000:])
        wait_until(
            lambda: bool(re.search(r"[1-9]\d* rows", "".join(sent))), 180, lambda: "".join(sent)[-2000:]
        )
        process.send_signal(signal.SIGINT)
        wait_until(
            lambda: "stopping, waiting for the running batch, at most 30s" in "".join(sent),
            120,
            lambda: "".join(sent)[-2000:],
        )
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
        ears.join(120)
        os.close(ours)

    left = shown_by("".join(sent))
    assert left[0].startswith("events: created at ")
    assert re.match(r"events: columns inferred from [\d,]+ events?\b", left[1])
    end = next(at for at, line in enumerate(left) if line.startswith("shop: "))
    assert re.fullmatch(r"shop: [\d,]+ rows, [\d,]+ new dead letters?, \d+ commits? in \d+ s", left[end])
    assert left[end + 1].startswith("  lakefeed status shop.yaml")
    assert not any("rows/s" in line for line in left)
