"""What a batch costs: a pipeline in a process of its own, its batches timed, its processes weighed.

`python tally.py PIPELINE WARMUP BATCHES REST` runs the pipeline, given as JSON, until its busiest source has
had so many batches, then leaves it alone for `REST` seconds; prints one line of JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

_LONGEST = 900.0


@dataclass(frozen=True)
class Tally:
    """Seconds of each batch, CPU seconds of all processes together, megabytes at the worst moment."""

    batches: list[float]
    """From one commit to the next, warm-up left out."""
    commits: list[float]
    """Of these, what the commits took that were waited for."""
    cpu: float
    """Of a batch, on average."""
    idle_cpu: float
    """Cores that are busy while nothing comes."""
    peak: float

    @property
    def median(self) -> float:
        """What a batch takes."""
        return statistics.median(self.batches)

    @property
    def mean(self) -> float:
        """The same with what is done only now and then."""
        return statistics.mean(self.batches)


def tally(pipeline: dict[str, Any], *, warmup: int, batches: int, rest: float = 0.0) -> Tally:
    """Run a pipeline whose source has rows for all these batches."""
    command = [sys.executable, __file__, json.dumps(pipeline), str(warmup), str(batches), str(rest)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak, deadline = 0.0, time.monotonic() + _LONGEST
        while process.poll() is None:
            peak = max(peak, _megabytes(process.pid))
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(0.25)
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode:
        raise RuntimeError(f"the pipeline ended with {process.returncode}")
    return Tally(peak=peak, **json.loads(said.splitlines()[-1]))


def _megabytes(pid: int) -> float:
    """What the processes hold, memory that they share counted once."""
    total = 0
    with suppress(psutil.Error):
        for one in _family(pid):
            with suppress(psutil.Error, OSError):
                total += one.memory_full_info().pss
    return total / 1e6


def _family(pid: int) -> list[psutil.Process]:
    driver = psutil.Process(pid)
    return [driver, *driver.children(recursive=True)]


def _cpu() -> float:
    """CPU seconds of this process and all below it, those that have ended included."""
    total = 0.0
    for one in _family(psutil.Process().pid):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _run(told: str, warmup: int, batches: int, rest: float) -> None:
    from lakefeed import Pipeline
    from lakefeed.engine.run_events import BatchDone, Committed, RunEvent
    from lakefeed.run import run

    stop = threading.Event()

    class Watch:
        def __init__(self) -> None:
            self.done: list[float] = []
            self.commits: list[float] = []
            self.slowest = 0.0
            self.cpu: list[float] = []

        def __call__(self, event: RunEvent) -> None:
            match event:
                case Committed():
                    self.slowest = max(self.slowest, event.seconds)
                case BatchDone():
                    self.done.append(time.monotonic())
                    self.commits.append(self.slowest)
                    self.slowest = 0.0
                    if len(self.done) in (warmup, warmup + batches):
                        self.cpu.append(_cpu())
                    if len(self.done) == warmup + batches:
                        over.set()

    over, watch = threading.Event(), Watch()
    idle = 0.0

    def wait() -> None:
        nonlocal idle
        if over.wait(_LONGEST) and rest:
            time.sleep(2.0)
            before = _cpu()
            time.sleep(rest)
            idle = (_cpu() - before) / rest
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    run(Pipeline.model_validate(json.loads(told)), watch=watch, stop=stop)
    times = [later - sooner for sooner, later in zip(watch.done, watch.done[1:], strict=False)]
    answer = {
        "batches": times[warmup - 1 : warmup - 1 + batches],
        "commits": watch.commits[warmup : warmup + batches],
        "cpu": (watch.cpu[1] - watch.cpu[0]) / batches,
        "idle_cpu": idle,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    _run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
