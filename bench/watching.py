"""What looking costs: four sources into fifty tables, with and without somebody who looks, in one run.

`python bench/run.py --watching`. The page and the metrics are asked for all the time, from another thread.
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
from pathlib import Path

TABLES = 50
SOURCES = 4
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


def measure(rows: int, batch: int, *, looked_at: bool) -> tuple[float, dict[str, list[float]]]:
    """Rows a second from the first commit to the last, and how long each answer took, in milliseconds."""
    from support.processes import free_port

    port = free_port() if looked_at else None
    with tempfile.TemporaryDirectory(prefix="lakefeed-bench-") as folder:
        told = json.dumps(pipeline(Path(folder), rows, batch, port))
        over, took = threading.Event(), {"/": list[float](), "/metrics": list[float]()}
        if port:
            threading.Thread(target=_look, args=(port, over, took), daemon=True).start()
        done = subprocess.run(
            [sys.executable, __file__, told], stdout=subprocess.PIPE, text=True, timeout=1200, check=True
        )
        over.set()
    return float(done.stdout.splitlines()[-1]), took


def _look(port: int, over: threading.Event, took: dict[str, list[float]]) -> None:
    """As a browser and as Prometheus do it, but more often than Prometheus: every two seconds."""
    while not over.wait(2.0):
        for path, times in took.items():
            began = time.perf_counter()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).read()
            except OSError:
                continue
            times.append((time.perf_counter() - began) * 1000)


def compare(rows: int, batch: int, rounds: int) -> None:
    """Turn by turn, as the machine is never the same for long."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    took: dict[str, list[float]] = {"/": [], "/metrics": []}
    for turn in range(2 * rounds):
        looked_at = turn % 2 == 1
        rate, times = measure(rows, batch, looked_at=looked_at)
        rates[looked_at].append(rate)
        for path, found in times.items():
            took[path] += found
        print(
            f"  {'looked at' if looked_at else 'alone':<10}{rate:>12,.0f} rows/s", file=sys.stderr, flush=True
        )
    alone, watched = (statistics.median(rates[looked_at]) for looked_at in (False, True))
    figures = {
        path: {
            "p50_ms": round(statistics.median(times), 1),
            "max_ms": round(max(times), 1),
            "asked": len(times),
        }
        for path, times in took.items()
    }
    print(f"looking costs {1 - watched / alone:.1%} of the throughput; answers: {figures}", file=sys.stderr)
    print(json.dumps({"alone": round(alone), "looked_at": round(watched), "answers": figures}))


def _run(told: str) -> None:
    from lakefeed import Pipeline
    from lakefeed.engine.report import BatchDone, Quiet
    from lakefeed.watch.run import run

    class Times(Quiet):
        def __init__(self) -> None:
            self.done: list[tuple[float, int]] = []

        def batch_done(self, event: BatchDone) -> None:
            self.done.append((time.monotonic(), event.read))

    watcher = Times()
    run(Pipeline.model_validate(json.loads(told)), once=True, watcher=watcher)
    first, last = watcher.done[SOURCES - 1][0], watcher.done[-1][0]
    print(sum(read for _, read in watcher.done[SOURCES:]) / (last - first))


if __name__ == "__main__":
    _run(sys.argv[1])
