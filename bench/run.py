"""`make bench`: rows per second from Kafka to a table, beside plain PySpark and the bare limit, in one run.

Then the compaction of 9,000 small files, beside Spark's OPTIMIZE.

Only the ratios mean something: they are taken on one machine, one after the other, from one broker.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

import small_files  # noqa: E402
from contestants import CONTESTANTS  # noqa: E402
from workload import PARTITIONS, TOPIC, produce  # noqa: E402

from support.kafka import Broker  # noqa: E402


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=4_000_000)
    options.add_argument("--batch", type=int, default=500_000)
    options.add_argument("--warm-up", type=int, default=2, help="batches that are not counted")
    options.add_argument("--bad-every", type=int, default=None, help="cut off every so manieth payload")
    options.add_argument("--only", choices=CONTESTANTS, default=None)
    options.add_argument("--small-files", action="store_true", help="only the compaction of 9,000 files")
    asked = options.parse_args()
    if asked.small_files:
        compact()
        return
    with Broker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        say(f"producing {asked.rows:,} events ...")
        size = produce(broker.address, asked.rows, asked.bad_every)
        rates = {}
        for name in [asked.only] if asked.only else CONTESTANTS:
            say(f"{name} ...")
            rates[name] = measure(name, broker.address, asked)
    report(rates, size, asked)
    if not asked.only:
        compact()


def compact() -> None:
    """Compact copies of one table, and say how long it took and how much memory."""
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent / 'tests'}", "TZ": "UTC"}
    with tempfile.TemporaryDirectory(prefix="lakefeed-bench-") as folder:
        say("writing 9,000 files ...")
        small_files.make(Path(folder) / "table")
        figures = {}
        for name in ("lakefeed", "spark"):
            say(f"{name} ...")
            copy = shutil.copytree(Path(folder) / "table", Path(folder) / name)
            figures[name] = small_files.measure(name, copy, environment)
            say(f"  {figures[name]}")
            shutil.rmtree(copy)
    print(json.dumps(figures))


def measure(name: str, brokers: str, asked: argparse.Namespace) -> float:
    """Rows per second from the end of the warm-up to the last commit."""
    with tempfile.TemporaryDirectory(prefix="lakefeed-bench-") as folder:
        arguments = [name, brokers, TOPIC, str(asked.rows), str(asked.batch), folder]
        done = subprocess.run(
            [sys.executable, str(HERE / "contestants.py"), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            timeout=1200,
            check=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent / 'tests'}", "TZ": "UTC"},
        )
    batches = [tuple(one) for one in json.loads(done.stdout.splitlines()[-1])]
    assert sum(rows for _, rows in batches) == asked.rows, f"{name} read {sum(r for _, r in batches)} rows"
    first = len(batches) * asked.warm_up * asked.batch // asked.rows
    seconds = batches[-1][0] - batches[first - 1][0]
    return sum(rows for _, rows in batches[first:]) / seconds


def report(rates: dict[str, float], size: float, asked: argparse.Namespace) -> None:
    mine = rates.get("lakefeed")
    batches = f"batches of {asked.batch:,}, {asked.warm_up} not counted"
    say(f"\n{asked.rows:,} events of {size:.0f} bytes, {batches}")
    for name, rate in rates.items():
        ratio = f"lakefeed is {mine / rate:.2f} times this" if mine and name != "lakefeed" else ""
        say(f"  {name:<15}{rate:>12,.0f} rows/s   {ratio}")
    figures = {name: round(rate) for name, rate in rates.items()}
    print(json.dumps({"rows": asked.rows, "payload_bytes": round(size), "rows_per_second": figures}))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
