"""Events over HTTP: how many are durable per second, how soon they are answered for, and how soon readable.

The load comes from `wrk` on the same two cores as the pipeline that writes the table. Call `python
receiving.py PORT EVENTS_A_SECOND`: it sends events at an even rate, each with its moment, until it is killed.
"""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from contender import Log, running
from figure import Asked, Figure, say
from freshness import Freshness, _freshness
from trickle import SCHEMA, payload

SECONDS = 60
RATE, STEP = 1_000, 0.02
BATCH = 100
EVENTS, REQUESTS = 100_000, 5_000
"""What is wanted a second: of events in batches, of requests with one event."""
P99, P50_READABLE = 50.0, 500.0
_LIMIT = 120.0
_TAIL = 10.0


@dataclass(frozen=True)
class Load:
    """What `wrk` tells of one load."""

    requests: float
    """Per second."""
    p50: float
    p99: float
    """Milliseconds."""
    refused: int


def measure(asked: Asked) -> Iterator[Figure]:
    """Full load in batches, full load of single events, half of what is wanted of each, and a trickle."""
    seconds = asked.of(SECONDS, least=5)
    with tempfile.TemporaryDirectory(prefix="lakefeed-bench-") as folder:
        for name, count, goal in (("batches of 100", BATCH, EVENTS), ("single events", 1, REQUESTS)):
            if asked.wants(name):
                yield from _loads(Path(folder) / str(count), name, count, goal, seconds)
        if asked.wants("trickle"):
            yield from _trickle(Path(folder) / "trickle", seconds)


def _loads(folder: Path, name: str, count: int, goal: int, seconds: int) -> Iterator[Figure]:
    with _receiver(folder, "1s") as port:
        _wrk(folder, port, count, seconds=3, connections=8)
        full = _wrk(folder, port, count, seconds, connections=32)
        say(f"  {name}: {full}")
        unit = "events/s" if count > 1 else "requests/s"
        rate = full.requests * count
        yield Figure(f"acknowledged, {name}", rate, unit, goal=f"at least {goal:,}", reached=rate >= goal)
        yield Figure(f"refused, {name}", full.refused, "requests", goal="none", reached=not full.refused)
        # So many clients, each with a pause between two requests, come to half of what is wanted.
        half = goal / count / 2
        clients = 16 if count > 1 else 64
        bounded = _wrk(folder, port, count, seconds, clients, pause=max(1, int(clients / half * 1000) - 1))
        say(f"  {name} at half: {bounded}")
        what = f"answered within, p99, {name} at {bounded.requests * count:,.0f} {unit}"
        yield Figure(what, bounded.p99, "ms", goal=f"under {P99:.0f} ms", reached=bounded.p99 < P99)
        yield Figure(f"answered within, p50, {name}", bounded.p50, "ms")


def _trickle(folder: Path, seconds: int) -> Iterator[Figure]:
    with _receiver(folder, "100ms") as port:
        log = Log(folder / "table")
        client = [sys.executable, __file__, str(port), str(RATE)]
        with running(client, folder / "trickled") as sender:
            log.follow_to_rows(1, _LIMIT, sender)
            first = time.time() + 10
            last = first + seconds
            log.follow(lambda: time.time() > last + _TAIL, seconds + _LIMIT, sender)
        found: Freshness = _freshness(log, (first, last), 0.0)
    say(f"  trickle: {found}")
    goal = f"under {P50_READABLE:.0f} ms"
    what = f"sent to readable, p50, {RATE:,} events/s"
    yield Figure(what, found.p50, "ms", goal=goal, reached=found.p50 < P50_READABLE)
    yield Figure("sent to readable, p99", found.p99, "ms")


@contextmanager
def _receiver(folder: Path, interval: str) -> Iterator[int]:
    """A pipeline that runs, and where it listens."""
    from support.processes import free_port

    folder.mkdir()
    port, file = free_port(), folder / "shop.yaml"
    source = {"type": "http", "listen": f"127.0.0.1:{port}", "streams": ["events"], "quota": "20GB"}
    pipeline = {
        "name": "received",
        "sources": {"api": {**source, "journal": str(folder / "journal")}},
        "tables": {"events": {"path": str(folder / "table"), "from": "api", "schema": SCHEMA}},
        "flush": {"interval": interval},
        "state": str(folder / "state"),
    }
    file.write_text(yaml.safe_dump(pipeline, sort_keys=False))
    with running([sys.executable, "-m", "lakefeed", "run", str(file)], folder / "said") as run:
        log = Log(folder / "table")
        deadline = time.monotonic() + _LIMIT
        while not _post(port, payload(-1)):
            assert run.poll() is None and time.monotonic() < deadline, (folder / "said").read_text()
            time.sleep(0.2)
        log.follow_to_rows(1, _LIMIT, run)
        yield port


def _post(port: int, body: bytes) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", "/events", body, {"Content-Type": "application/x-ndjson"})
        return connection.getresponse().status == 202
    except OSError:
        return False
    finally:
        connection.close()


_SCRIPT = """\
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = io.open("{body}"):read("*a")
{pause}
"""


def _wrk(folder: Path, port: int, count: int, seconds: int, connections: int, pause: int = 0) -> Load:
    from support.debian import wrk

    body, script = folder / "body.json", folder / "load.lua"
    events = [payload(number) for number in range(count)]
    body.write_bytes(b"[" + b",".join(events) + b"]" if count > 1 else events[0])
    pausing = f"function delay() return {pause} end" if pause else ""
    script.write_text(_SCRIPT.format(body=body, pause=pausing))
    program, environment = wrk()
    command = [program, "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "10s"]
    url = f"http://127.0.0.1:{port}/events"
    done = subprocess.run(
        [*map(str, command), "-s", str(script), url],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        check=True,
    )
    return _read(done.stdout)


def _read(said: str) -> Load:
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    marks = {mark: float(value) * _MILLISECONDS[unit] for mark, value, unit in _PERCENTILE.findall(said)}
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    assert rate, said
    return Load(float(rate[1]), marks["50"], marks["99"], int(refused[1]) if refused else 0)


_PERCENTILE = re.compile(r"^\s+(\d+)%\s+([\d.]+)(us|ms|s)$", re.MULTILINE)
_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


def send(port: int, rate: int) -> None:
    """Some events at each step of the clock, in one request over a connection that stays open."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    began, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * rate)
        if due > sent:
            body = b"\n".join(payload(number) for number in range(sent, due))
            connection.request("POST", "/events", body, {"Content-Type": "application/x-ndjson"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 202, answer.status
            sent = due
        time.sleep(STEP)


if __name__ == "__main__":
    send(int(sys.argv[1]), int(sys.argv[2]))
