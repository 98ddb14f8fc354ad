"""Start and rest: how soon the first rows are there, how quick commands answer, what an idle run costs."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml
from contender import Log, running
from family import Family, PeakMemory
from figure import Asked, Figure, say
from shapes import NARROW
from workload import NARROW_TOPIC, PARTITIONS, produce

STARTS = 3
LOOKS = 5
IDLE_SECONDS = 60
BATCH = 3_000_000
_SETTLE = 20.0
_LIMIT = 300.0


def measure(asked: Asked) -> Iterator[Figure]:
    """One broker for all; each thing is measured with tables of its own."""
    from support.kafka import Broker

    with Broker(lasting=True) as broker, tempfile.TemporaryDirectory(prefix="lakefeed-bench-") as folder:
        place = _Place(broker.address, Path(folder))
        broker.create_topic("small", PARTITIONS)
        produce(broker.address, replace(NARROW_TOPIC, name="small"), 10_000)
        if asked.wants("first commit"):
            yield _first_commit(place)
        if asked.wants("validate") or asked.wants("status") or asked.wants("idle"):
            yield from _at_rest(place, asked)
        if asked.wants("memory"):
            rows = asked.of(BATCH)
            broker.create_topic("large", PARTITIONS)
            produce(broker.address, replace(NARROW_TOPIC, name="large"), 2 * rows + rows // 2)
            yield from _memory(place, rows)


class _Place:
    """Where pipelines of this part read and write."""

    def __init__(self, brokers: str, folder: Path) -> None:
        self._brokers = brokers
        self._folder = folder

    def pipeline(self, name: str, topic: str, **more: object) -> tuple[Path, Path]:
        """The file of a pipeline that nothing has run yet, and the table that it feeds."""
        folder = self._folder / name
        folder.mkdir()
        file, table = folder / "lakefeed.yaml", folder / "table"
        source = {"type": "kafka", "brokers": self._brokers, "topics": [topic], "format": "json"}
        pipeline = {
            "name": name,
            "sources": {"clicks": source},
            "tables": {"events": {"path": str(table), "from": "clicks", "schema": NARROW}},
            "state": str(folder / "state"),
            **more,
        }
        file.write_text(yaml.safe_dump(pipeline, sort_keys=False))
        return file, table


def _first_commit(place: _Place) -> Figure:
    """The first start may write the class archive and fills the page cache: it does not count."""
    took = []
    for turn in range(STARTS + 1):
        file, table = place.pipeline(f"start{turn}", "small")
        log = Log(table)
        began = time.monotonic()
        with running(_lakefeed("run", file), file.with_name("said")) as run:
            log.follow_to_rows(1, _LIMIT, run)
            took.append(time.monotonic() - began)
            say(f"  first commit after {took[-1]:.2f} s")
            run.terminate()
            run.wait(60)
    value = statistics.median(took[1:])
    return Figure(
        f"run to the first commit, median of {STARTS}", value, "s", goal="within 12 s", reached=value <= 12
    )


def _at_rest(place: _Place, asked: Asked) -> Iterator[Figure]:
    """A pipeline that has read all there is: what it costs, and how quick the commands beside it are."""
    file, table = place.pipeline("rest", "small")
    log = Log(table)
    with running(_lakefeed("run", file), file.with_name("said")) as run:
        log.follow_to_rows(1, _LIMIT, run)
        time.sleep(_SETTLE)
        if asked.wants("idle"):
            yield _idle(run.pid, asked.of(IDLE_SECONDS, least=10))
        for command in ("validate", "status"):
            if asked.wants(command):
                yield _look(command, file)


def _idle(pid: int, seconds: float) -> Figure:
    family = Family(pid)
    worked, began = family.cpu(), time.monotonic()
    time.sleep(seconds)
    share = (family.cpu() - worked) / (time.monotonic() - began) * 100
    return Figure("CPU of an idle pipeline", share, "% of a core", goal="under 3%", reached=share < 3)


def _look(command: str, file: Path) -> Figure:
    took = []
    worked = _cpu_of_children()
    for _ in range(LOOKS + 1):
        began = time.monotonic()
        subprocess.run(_lakefeed(command, file), check=True, capture_output=True, timeout=60)
        took.append(time.monotonic() - began)
    say(f"  {command}: {(_cpu_of_children() - worked) / len(took):.2f} s of CPU each")
    value = statistics.median(took[1:])
    what = f"lakefeed {command}, median of {LOOKS}"
    return Figure(what, value, "s", goal="under 1 s", reached=value < 1)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory(place: _Place, rows: int) -> Iterator[Figure]:
    file, table = place.pipeline("large", "large", flush={"rows": rows, "bytes": "4GB"})
    log = Log(table)
    with running(_lakefeed("run", file), file.with_name("said")) as run:
        with PeakMemory(Family(run.pid)) as peak:
            log.follow_to_rows(2 * rows, _LIMIT, run)
        say(f"  {log.rows:,} rows in {len(log.seen)} versions")
    together = peak.together / 1e9
    what = f"peak memory (PSS), batches of {rows:,} rows"
    yield Figure(what, together, "GB", goal="within 2 GB", reached=together <= 2)
    for role, size in peak.alone.items():
        yield Figure(f"  of it {role}", size / 1e9, "GB")


def _lakefeed(command: str, file: Path) -> list[str]:
    return [sys.executable, "-m", "lakefeed", command, str(file)]
