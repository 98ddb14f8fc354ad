"""What looking costs: four sources into fifty tables, with and without somebody who looks, in one run.

The page and the metrics are asked for all the time, from another thread.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from figure import Asked, Figure, say

from lakefeed import Pipeline
from lakefeed.engine.run_events import BatchDone, RunEvent
from lakefeed.run import run

TABLES = 50
SOURCES = 4
ROWS = 1_500_000
BATCH = 10_000
ROUNDS = 2
COLUMNS = {
    "event_id": "long not null",
    "event_time": "timestamp",
    "event_type": "string",
    "product_id": "long",
    "category_id": "long",
    "category_code": "string",
    "brand": "string",
    "price": "double",
    "user_id": "long",
    "user_session": "string",
}


def pipeline(folder: Path, rows: int, batch: int, port: int | None) -> dict[str, object]:
    return {
        "name": "watched",
        "sources": {
            f"s{at}": {"type": "generate", "rows": rows // SOURCES, "partitions": 4, "seed": at}
            for at in range(SOURCES)
        },
        "tables": {
            f"t{at:02}": {"path": str(folder / f"t{at:02}"), "from": f"s{at % SOURCES}", "schema": COLUMNS}
            for at in range(TABLES)
        },
        "flush": {"rows": batch},
        "state": str(folder / "state"),
        **({"http": {"listen": f"127.0.0.1:{port}"}} if port else {}),
    }


@dataclass(frozen=True)
class Measured:
    """Rows a second from the first commit to the last, CPU seconds of all processes, and of the server."""

    rate: float
    cpu: float
    serving: float


def _once(rows: int, batch: int, took: dict[str, list[float]] | None) -> Measured:
    """One run; with `took` it is looked at, and that fills with how long answers took, in milliseconds."""
    from support.processes import free_port

    port = None if took is None else free_port()
    over = threading.Event()
    with tempfile.TemporaryDirectory(prefix="lakefeed-bench-") as folder:
        told = json.dumps(pipeline(Path(folder), rows, batch, port))
        if port is not None and took is not None:
            threading.Thread(target=_look, args=(port, over, took), daemon=True).start()
        command = [sys.executable, __file__, told]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            used = _cpu_until_it_ends(process)
            assert process.stdout is not None
            said = process.stdout.read()
        over.set()
    return Measured(cpu=used, **json.loads(said.splitlines()[-1]))


def _cpu_until_it_ends(process: subprocess.Popen[str]) -> float:
    """CPU seconds of the driver, the JVM and the workers, as last seen of each."""
    used: dict[int, float] = {}
    driver = psutil.Process(process.pid)
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            for one in [driver, *driver.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    times = one.cpu_times()
                    used[one.pid] = times.user + times.system
        time.sleep(0.2)
    return sum(used.values())


def _look(port: int, over: threading.Event, took: dict[str, list[float]]) -> None:
    """As a browser does it, every two seconds, and the metrics as often, which Prometheus asks for less."""
    while not over.wait(2.0):
        for path, times in took.items():
            began = time.perf_counter()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).read()
            except OSError:
                continue
            times.append((time.perf_counter() - began) * 1000)


def measure(asked: Asked) -> Iterator[Figure]:
    """Turn by turn, as the machine is never the same for long.

    On a machine that others use, rows a second differ by more than looking costs; the share of the CPU does
    not.
    """
    alone: list[Measured] = []
    watched: list[Measured] = []
    took: dict[str, list[float]] = {"/": [], "/metrics": []}
    for turn in range(2 * ROUNDS):
        looked_at = turn % 2 == 1
        found = _once(asked.of(ROWS), asked.of(BATCH), took if looked_at else None)
        (watched if looked_at else alone).append(found)
        name = "looked at" if looked_at else "alone"
        say(f"  {name}: {found.rate:,.0f} rows/s, {found.cpu:.1f} CPU s")
    for path, times in took.items():
        for name, value in [("p50", statistics.median(times)), ("p95", _p95(times)), ("longest", max(times))]:
            what = f"{path} of fifty tables, {name} of {len(times)}"
            yield Figure(what, value, "ms", goal="within 200 ms", reached=value <= 200)
    share = sum(one.serving for one in watched) / sum(one.cpu for one in watched)
    yield Figure(
        "CPU of answering", share * 100, "% of all", goal="less than 2% of the stream's", reached=share < 0.02
    )
    rates = [statistics.median(one.rate for one in runs) for runs in (watched, alone)]
    yield Figure("rows/s, looked at", rates[0], "rows/s", rates[0] / rates[1], "not looked at")


def _p95(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]


class _Times:
    """When batches were done, and the CPU time of the server's thread by then."""

    def __init__(self) -> None:
        self.done: list[tuple[float, int]] = []
        self.serving = 0.0

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, BatchDone):
            self.done.append((time.monotonic(), event.read))
            ids = {thread.native_id for thread in threading.enumerate() if thread.name == "http"}
            for one in psutil.Process().threads():
                if one.id in ids:
                    self.serving = one.user_time + one.system_time


def _run(told: str) -> None:
    watcher = _Times()
    run(Pipeline.model_validate(json.loads(told)), once=True, watch=watcher)
    first, last = watcher.done[SOURCES - 1][0], watcher.done[-1][0]
    rate = sum(read for _, read in watcher.done[SOURCES:]) / (last - first)
    print(json.dumps({"rate": rate, "serving": watcher.serving}))


if __name__ == "__main__":
    _run(sys.argv[1])
