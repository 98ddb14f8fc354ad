"""`make bench-upkeep`: a stream of many small commits with upkeep, without it, and killed in the middle.

Two tables get the same events by turns, one with upkeep and one without, so that what else the machine does
meets both. A third is killed at each named point of upkeep. Then DuckDB reads all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

TARGET = 4 * 1024**2
# A commit takes some tenths of a second here and a second in the case that this stands for, so intervals are
# shorter than the defaults in a larger proportion.
ON = (
    "{compact: {every: 30s}, cluster: {every: 120s}, log: {checkpoint_every: 50, retain: 30s}, "
    "vacuum: {every: 60s, retain: 30s, allow_short_retention: true}}"
)
BUSY = (
    "compact: {every: 2s, min_files: 2}, cluster: {every: 10s}, log: {checkpoint_every: 50, retain: 30s}, "
    "vacuum: {every: 4s, retain: 2s, allow_short_retention: true}, max_share: 0.5"
)
KILLS = ["compact_started:2", "compact_done:3", "cluster_started:1", "cluster_done:1"]
KILLS += ["vacuum_started:1", "vacuum_deleted:3", "vacuum_done:1", "delete_started:1", "delete_done:1"]
DAY_ROWS = 864_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--commits", type=int, default=2000)
    options.add_argument("--rows", type=int, default=2000, help="of one commit")
    options.add_argument("--turns", type=int, default=4)
    options.add_argument("--kill-commits", type=int, default=60, help="of the table that is killed, per kill")
    options.add_argument("--together", action="store_true", help="both at once, where other programs run")
    options.add_argument("--folder", type=Path, default=None)
    options.add_argument("--child", nargs=2, default=None, help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.child:
        return child(Path(asked.child[0]), int(asked.child[1]))
    if asked.folder:
        return bench(asked, asked.folder)
    with tempfile.TemporaryDirectory(prefix="lakefeed-upkeep-") as folder:
        bench(asked, Path(folder))


def bench(asked: argparse.Namespace, folder: Path) -> None:
    seconds, cpu = {"off": 0.0, "on": 0.0}, {"off": 0.0, "on": 0.0}
    steps: dict[str, int] = {}

    def take_turn(name: str, turn: int) -> None:
        end = asked.commits * turn // asked.turns * asked.rows
        done = run(folder / name, ON if name == "on" else "off", end, asked.rows)
        seconds[name] += done["seconds"]
        cpu[name] += done["cpu"]
        for step in done["steps"]:
            steps[step] = steps.get(step, 0) + 1
        took = f"{done['seconds']:.1f} s, {done['cpu']:.1f} s of CPU"
        say(f"turn {turn}: {name}: {done['commits']} commits in {took}")

    with ThreadPoolExecutor(3 if asked.together else 1) as pool:
        waiting = []
        for turn in range(1, asked.turns + 1):
            names = ["off", "on"] if turn % 2 else ["on", "off"]
            waiting += [pool.submit(take_turn, name, turn) for name in names]
            if asked.together:
                wait(waiting)
        for each in [*waiting, pool.submit(killed, asked, folder)]:
            each.result()
    report(asked, folder, seconds, cpu, steps)


def killed(asked: argparse.Namespace, folder: Path) -> None:
    """Every kind of upkeep is killed once; `delete` keeps all but the first quarter of the first day."""
    age = (time.time() - 1767225600 - 6 * 3600) / 86400
    upkeep = f"{{{BUSY}, delete_after: {{column: event_time, age: {age:.4f}d, every: 4s}}}}"
    end = 0
    for point in KILLS:
        end += asked.kill_commits * asked.rows
        done = run(folder / "killed", upkeep, end, asked.rows, kill_at=point)
        say(f"killed: {point}: {done.get('commits', 'SIGKILL')}")
    run(folder / "killed", upkeep, end + asked.rows, asked.rows)


def run(folder: Path, upkeep: str, end: int, rows: int, kill_at: str = "") -> dict[str, Any]:
    """Stream up to row `end`; with `kill_at`, until the process is killed there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shop.yaml").write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: {end if not kill_at else end * 10}}}}}
tables:
  events:
    path: events
    from: clicks
    partition_by: [day(event_time)]
    cluster_by: [user_id]
    target_file_size: {TARGET}
    schema: {{event_id: long not null, event_time: timestamp, event_type: string, product_id: long,
      category_id: long, category_code: string, brand: string, price: "decimal(10,2)", user_id: long,
      user_session: string}}
upkeep: {upkeep}
flush: {{rows: {rows}, interval: 50ms}}
"""
    )
    done = subprocess.run(
        [sys.executable, str(HERE / "upkeep.py"), "--child", str(folder / "shop.yaml"), str(end)],
        env={**os.environ, "LAKEFEED_KILL_AT": kill_at},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if kill_at else None,
        text=True,
        timeout=3600,
    )
    if kill_at and done.returncode == -9:
        return {}
    assert done.returncode == 0, f"ended with {done.returncode}"
    return dict(json.loads(done.stdout.splitlines()[-1]))


def child(file: Path, end: int) -> None:
    from lakefeed import Pipeline
    from lakefeed.engine.run_events import BatchDone, Committed, RunEvent, UpkeepDone
    from lakefeed.run import run as run_engine
    from support.faultpoints import UPKEEP_POINTS

    killing = os.environ.get("LAKEFEED_KILL_AT", "").partition(":")[0] in UPKEEP_POINTS
    stop = threading.Event()

    class Counting:
        commits: list[tuple[float, float]] = []  # noqa: RUF012
        steps: list[str] = []  # noqa: RUF012
        seen = 0

        def __call__(self, event: RunEvent) -> None:
            match event:
                case Committed():
                    self.commits.append((time.monotonic(), cpu_seconds()))
                    self.seen += event.rows
                case UpkeepDone():
                    self.steps.append(event.operation)
                case BatchDone(lag=0) if not killing:
                    stop.set()

    told = Counting()
    run_engine(Pipeline.from_file(file), watch=told, stop=stop)
    # The first commits of a process pay for its start.
    first = min(20, len(told.commits) - 1)
    scale = len(told.commits) / (len(told.commits) - first)
    seconds, cpu = (
        (end - begin) * scale for begin, end in zip(told.commits[first], told.commits[-1], strict=True)
    )
    print(json.dumps({"commits": len(told.commits), "seconds": seconds, "cpu": cpu, "steps": told.steps}))


def cpu_seconds() -> float:
    """What this process, Java and the workers have taken of the processor, whatever other programs do."""
    import psutil

    total = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def report(
    asked: argparse.Namespace,
    folder: Path,
    seconds: dict[str, float],
    cpu: dict[str, float],
    steps: dict[str, int],
) -> None:
    found = {name: look(folder / name / "events") for name in ("off", "on", "killed")}
    rows = asked.commits * asked.rows
    for name in ("off", "on"):
        check(found[name]["ids"], 0, rows)
    check(found["killed"]["ids"], found["killed"]["ids"][0], found["killed"]["ids"][-1] + 1)
    say(f"\n{asked.commits:,} commits of {asked.rows:,} rows, target {TARGET // 1024**2} MB; {steps}")
    say(f"{'':<26}{'without upkeep':>16}{'with upkeep':>16}{'killed':>16}")
    for key in (
        "files",
        "MB",
        "closed days: smallest MB",
        "closed days: largest MB",
        "log entries",
        "query ms",
    ):
        cells = "".join(f"{found[name][key]:>16,}" for name in found)
        say(f"{key:<26}{cells}")
    say(f"{'rows/s':<26}" + "".join(f"{rows / seconds[name]:>16,.0f}" for name in seconds))
    say(f"throughput with upkeep: {seconds['off'] / seconds['on']:.0%} of that without")
    say(f"rows for a second of CPU with upkeep: {cpu['off'] / cpu['on']:.0%} of those without")
    say(f"query: {found['off']['query ms'] / found['on']['query ms']:.1f} times as fast with upkeep")
    lost = found["killed"]["ids"][0]
    say(
        f"ledgers hold: {rows:,} rows in both; killed: {len(found['killed']['ids']):,} rows, {lost:,} too old"
    )
    for one in found.values():
        del one["ids"]
    print(json.dumps({"tables": found, "seconds": seconds, "cpu": cpu, "steps": steps}))


def check(ids: list[int], first: int, end: int) -> None:
    assert ids == list(range(first, end)), f"the ledger does not hold: {len(ids)} of {end - first}"


def look(table: Path) -> dict[str, Any]:
    import duckdb
    import pyarrow as pa
    from deltalake import DeltaTable
    from duckdb_extensions import import_extension

    delta = DeltaTable(table)
    adds = pa.table(delta.get_add_actions(flatten=True))
    sizes = adds["size_bytes"].to_pylist()
    days = [str(day) for day in adds["partition.event_time_day"].to_pylist()]
    closed = [size for size, day in zip(sizes, days, strict=True) if day != max(days)]
    import_extension("delta")
    with duckdb.connect() as connection:
        connection.execute("LOAD delta")
        scan = f"delta_scan('{table}')"
        ids = connection.execute(f"SELECT event_id FROM {scan} ORDER BY 1").fetchnumpy()["event_id"]
        day = sorted(set(days))[:2][-1]
        someone = f"SELECT user_id FROM {scan} WHERE event_time_day = '{day}' ORDER BY event_id LIMIT 1"
        user = connection.execute(someone).fetchall()[0][0]
        query = f"SELECT count(*), sum(price) FROM {scan} WHERE event_time_day = '{day}' AND user_id = {user}"
        times = []
        for _ in range(7):
            began = time.monotonic()
            connection.execute(query).fetchall()
            times.append(time.monotonic() - began)
    return {
        "files": len(sizes),
        "MB": round(sum(sizes) / 1024**2, 1),
        "closed days: smallest MB": round(min(closed, default=0) / 1024**2, 2),
        "closed days: largest MB": round(max(closed, default=0) / 1024**2, 2),
        "closed sizes": sorted(closed)[:200],
        "log entries": len(list((table / "_delta_log").iterdir())),
        "query ms": round(statistics.median(times) * 1000),
        "ids": ids.tolist(),
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
