"""How soon an event can be read: 1,000 events a second, from produce to readable, beside plain PySpark.

`python freshness.py BROKERS TOPIC FOLDER` is the plain PySpark, until it is killed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from contender import Log, running
from family import Family
from figure import Asked, Figure, say
from trickle import PARTITIONS, SCHEMA

RATE = 1_000
SECONDS = 600
WARM_UP = 60
INTERVAL = "200ms"
_LIMIT = 120.0
_TAIL = 20.0


@dataclass(frozen=True)
class Freshness:
    """Milliseconds from produce to readable that so many percent of the events stay within."""

    p50: float
    p95: float
    p99: float
    events: int
    commits: int
    cpu: float
    """Percent of one core, all processes of the contestant."""


def measure(asked: Asked) -> Iterator[Figure]:
    """Lakefeed, then plain PySpark, each for as long, on a topic of its own in one broker."""
    from support.kafka import Broker

    seconds, warm_up = asked.of(SECONDS, least=20), asked.of(WARM_UP, least=20)
    found: dict[str, Freshness] = {}
    with Broker(lasting=True) as broker, tempfile.TemporaryDirectory(prefix="lakefeed-bench-") as folder:
        for name in ("lakefeed", "plain_pyspark"):
            if asked.wants(name):
                broker.create_topic(name, PARTITIONS)
                found[name] = _run(name, broker.address, Path(folder) / name, seconds, warm_up)
                say(f"  {name}: {found[name]}")
    yield from _figures(found)


def _figures(found: dict[str, Freshness]) -> Iterator[Figure]:
    plain = found.get("plain_pyspark")
    for name, one in found.items():
        for mark, limit in (("p50", 500), ("p95", None), ("p99", 1_500)):
            value = getattr(one, mark)
            what = f"produce to readable, {mark}, {name}"
            if name != "lakefeed" or limit is None:
                yield Figure(what, value, "ms")
                continue
            ratio = value / getattr(plain, mark) if plain else None
            goal = f"under {limit:,} ms, at most half"
            reached = value < limit and (ratio is None or ratio <= 0.5)
            yield Figure(what, value, "ms", ratio, "plain_pyspark", goal, reached)
        yield Figure(f"commits, {name}", one.commits, f"of {one.events:,} events")
        yield Figure(f"CPU, {name}", one.cpu, "% of a core")


def _run(name: str, brokers: str, folder: Path, seconds: float, warm_up: float) -> Freshness:
    folder.mkdir()
    log = Log(folder / "table")
    trickle = [sys.executable, str(Path(__file__).with_name("trickle.py")), brokers, name, str(RATE)]
    with (
        running(_command(name, brokers, folder), folder / "said") as contestant,
        running(trickle, folder / "trickled"),
    ):
        family = Family(contestant.pid)

        def follow(moment: float) -> float:
            log.follow(lambda: time.time() > moment, _LIMIT + moment - time.time(), contestant)
            return family.cpu()

        log.follow_to_rows(1, _LIMIT, contestant)
        first = time.time() + warm_up
        last = first + seconds
        worked = follow(first)
        worked = follow(last) - worked
        # What was produced within the time may be readable only after it.
        follow(last + _TAIL)
    return _freshness(log, (first, last), worked)


def _command(name: str, brokers: str, folder: Path) -> list[str]:
    if name == "plain_pyspark":
        return [sys.executable, __file__, brokers, name, str(folder)]
    file = folder / "lakefeed.yaml"
    pipeline = {
        "name": "fresh",
        "sources": {"clicks": {"type": "kafka", "brokers": brokers, "topics": [name], "format": "json"}},
        "tables": {"events": {"path": str(folder / "table"), "from": "clicks", "schema": SCHEMA}},
        "flush": {"interval": INTERVAL},
        "state": str(folder / "state"),
    }
    file.write_text(yaml.safe_dump(pipeline, sort_keys=False))
    return [sys.executable, "-m", "lakefeed", "run", str(file)]


def _freshness(log: Log, window: tuple[float, float], worked: float) -> Freshness:
    """From the files of each version, read after the run so as not to disturb what is measured."""
    import numpy as np
    import pyarrow.parquet as pq

    sent, readable, numbers, commits = [], [], [], 0
    for version, moment in enumerate(log.seen):
        adds = log.adds(version)
        commits += bool(adds) and window[0] <= moment < window[1]
        for add in adds:
            rows = pq.read_table(log.table / add["path"], columns=["number", "sent"], partitioning=None)
            sent.append(rows["sent"].to_numpy() / 1e6)
            numbers.append(rows["number"].to_numpy())
            readable.append(np.full(rows.num_rows, moment))
    events = np.concatenate(sent)
    within = (events >= window[0]) & (events < window[1])
    counted = np.sort(np.concatenate(numbers)[within])
    assert len(counted) and (np.diff(counted) == 1).all(), "events were lost or repeated"
    assert events.max() >= window[1], f"the last events were not readable within {_TAIL:.0f} s"
    took = (np.concatenate(readable) - events)[within] * 1000
    p50, p95, p99 = (round(float(value), 1) for value in np.percentile(took, [50, 95, 99]))
    share = worked / (window[1] - window[0]) * 100
    return Freshness(p50, p95, p99, int(within.sum()), commits, round(share, 1))


def _plain(brokers: str, topic: str, folder: str) -> None:
    from plain import events, session
    from pyspark.sql import functions as F

    columns = ", ".join(f"{name} {kind.replace(' not null', '')}" for name, kind in SCHEMA.items())
    rows = (
        events(session(), brokers, topic)
        .select(F.from_json(F.col("value").cast("string"), columns).alias("row"))
        .select("row.*")
    )
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(processingTime="200 milliseconds").start(f"{folder}/table").awaitTermination()


if __name__ == "__main__":
    _plain(*sys.argv[1:])
