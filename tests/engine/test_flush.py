"""A pipeline that goes on: when batches end, what it says meanwhile, and how it is stopped."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

from deltalake import DeltaTable

from conftest import TopicFactory
from support.drivers import Drivers
from support.kafka import Broker
from support.lakefeed import start
from support.ledger import assert_each_once, assert_versions_contiguous, table_ids
from support.processes import wait_until

COMMIT_LINE = re.compile(
    r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ INFO +(\w+): version (\d+): ([\d,]+) rows in (\d+) files?, "
)


def commits(path: Path) -> list[dict[str, int]]:
    """Version, rows and time in milliseconds of every commit that holds rows, oldest first."""
    found = []
    for one in reversed(DeltaTable(path).history()):
        commit_info = json.loads(one["lakefeed"])
        if commit_info["kind"] == "rows":
            found.append({"version": one["version"], "rows": commit_info["rows"], "at": one["timestamp"]})
    return found


def exists(path: Path) -> bool:
    return DeltaTable.is_deltatable(str(path))


def test_each_source_keeps_its_own_beat_and_interrupt_ends_the_run_well(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  brisk: {type: generate, rate: 200, flush: {interval: 300ms}}
  calm: {type: generate, rate: 200, flush: {interval: 2s}}
  counted: {type: generate, rate: 200, flush: {interval: 1h, rows: 400}}
  common: {type: generate, rate: 200}
tables:
  brisk: {path: brisk, from: brisk}
  calm: {path: calm, from: calm}
  counted: {path: counted, from: counted}
  common: {path: common, from: common}
flush: {interval: 1s}
"""
    )
    with start("run", str(file)) as process:
        process.wait_for(lambda: exists(tmp_path / "calm") and len(commits(tmp_path / "calm")) >= 4)

        process.interrupt()

        assert process.wait(120) == 0, process.stderr
        said = process.stderr
    names = ("brisk", "common", "calm", "counted")
    # But for the first: what is there at the start is not kept waiting.
    assert all(one["rows"] == 400 for one in commits(tmp_path / "counted")[1:])
    # As many seconds of events in each batch, however late it was committed; the first began with the table.
    smallest = {name: min(one["rows"] for one in commits(tmp_path / name)[1:]) for name in names}
    assert (
        55 <= smallest["brisk"] < smallest["calm"] and smallest["common"] >= 190 and smallest["calm"] >= 390
    )
    for name in names:
        ids = table_ids(tmp_path / name)
        assert sorted(ids) == list(range(len(ids)))
        assert_versions_contiguous(tmp_path / name)
    assert "Traceback" not in said
    lines = [found for found in map(COMMIT_LINE.match, said.splitlines()) if found]
    told = {(found[1], int(found[2])): int(found[3].replace(",", "")) for found in lines}
    for name in names:
        for one in commits(tmp_path / name):
            assert told[name, one["version"]] == one["rows"]


def test_silence_ends_a_batch_and_partitions_that_are_added_are_read(
    broker: Broker, topic: TopicFactory, drivers: Drivers, tmp_path: Path
) -> None:
    name = topic(partitions=1)
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: '{broker.address}', topics: [{name}], format: json}}
tables: {{events: {{path: events, from: clicks, schema: {{event_id: long not null}}}}}}
flush: {{interval: 1h, idle: 500ms}}
"""
    )

    def produce(first: int, partition: int) -> None:
        broker.produce(name, [json.dumps({"event_id": n}) for n in range(first, first + 10)], partition)

    def landed(count: int) -> bool:
        return exists(tmp_path / "events") and len(table_ids(tmp_path / "events")) == count

    produce(0, 0)
    driver = drivers.start(file, once=False)
    wait_until(lambda: landed(10), 120, lambda: driver.said)
    before = len(commits(tmp_path / "events"))

    broker.add_partitions(name, 3)
    produce(10, 1)
    produce(20, 2)
    wait_until(lambda: landed(30), 120, lambda: driver.said)
    produce(30, 0)
    wait_until(lambda: landed(40), 120, lambda: driver.said)

    driver.terminate()
    ended = driver.wait()
    assert ended.code == 0, ended.said
    assert before == 1
    assert_each_once(range(40), table_ids(tmp_path / "events"))


# Makes the terminal the one that Ctrl-C is pressed on, then becomes the command.
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def plain(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def on_terminal(file: Path, seen: re.Pattern[str], timeout: float = 120) -> tuple[int, str]:
    """Run on a pseudo-terminal until a text has been seen, then press Ctrl-C: exit code and all output."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL, sys.executable, "-m", "lakefeed", "run", str(file)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "24"},
        start_new_session=True,
    )
    os.close(follower)
    shown, pressed, deadline = "", False, time.monotonic() + timeout
    try:
        while time.monotonic() < deadline:
            if not select.select([leader], [], [], 0.2)[0]:
                continue
            try:
                shown += os.read(leader, 65536).decode(errors="replace")
            except OSError as error:
                # Linux says so when the last process has let go of the terminal.
                assert error.errno == errno.EIO
                break
            if not pressed and seen.search(plain(shown)):
                # The terminal sends it to every process on it: Java and the workers get it as well.
                os.write(leader, b"\x03")
                pressed = True
        assert pressed, f"never seen: {seen.pattern}\n{plain(shown)[-2000:]}"
        return process.wait(max(1.0, deadline - time.monotonic())), plain(shown)
    finally:
        process.kill()
        os.close(leader)


def test_terminal_gets_a_live_line_with_rate_and_dead_letters(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {clicks: {type: generate, rate: 1000, bad_ratio: 0.01}}
tables: {events: {path: events, from: clicks}}
flush: {interval: 300ms}
"""
    )
    line = re.compile(
        r"shop +[\d,]+ rows +[1-9][\d,]* rows/s +lag [\d,]+ +[1-9]\d* commits +[1-9]\d* new dead letters"
    )

    code, text = on_terminal(file, line)

    assert code == 0, text[-2000:]
    assert "Traceback" not in text
    assert "version 1:" not in text
    last = re.findall(r"shop +([\d,]+) rows .*?([\d,]+) new dead letters", text)[-1]
    assert [int(number.replace(",", "")) for number in last] == [
        len(table_ids(tmp_path / "events")),
        len(table_ids(tmp_path / "shop_dead_letters", "offset")),
    ]
