"""Quiet days: the command line with next to nothing to read, put to sleep, woken and cut off."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from faults.world import TABLES, World
from support.lakefeed import Process, run, start

SETTINGS = ["--set", "flush.interval=200ms", "--set", "flush.idle=50ms"]


class QuietDays:
    """One pipeline that waits most of the time. `note` is told what happens to it."""

    def __init__(self, world: World, chance: random.Random, note: Callable[[str], None]) -> None:
        self._world, self._chance, self._note = world, chance, note
        self._process: Process | None = None
        self._days: dict[str, Callable[[Process], None]] = {
            "silence": lambda process: self._sleep(2, 8),
            "new field after silence": lambda process: self._world.widen_events(1),
            "everything asleep": self._everything_sleeps,
            "process asleep": self._process_sleeps,
            "broker asleep": lambda process: self._broker_sleeps(),
            "broker restarted in silence": lambda process: self._restart_broker(),
            "SIGTERM in silence": self._stop,
        }

    def run(self, seconds: float) -> None:
        """Live for so long, a single event after each day; then stop it and check the ledger."""
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                process = self._running()
                name = self._chance.choice(list(self._days))
                self._note(name)
                self._days[name](process)
                self._single_event()
            self._stop(self._running())
        finally:
            if self._process is not None:
                self._process.close()
        self._world.drained = True
        self._world.check()
        code, _, said = run("run", str(self._world.file), "--once")
        assert code == 0, said
        self._world.check()

    def _running(self) -> Process:
        if self._process is None:
            self._process = process = start("run", str(self._world.file), *SETTINGS)
            # From here on a signal is a wish; before, it ends Python.
            process.wait_for(lambda: "starting Spark" in process.stderr)
        return self._process

    def _single_event(self) -> None:
        """One event, which must land although nothing has happened for a while."""
        process = self._running()
        self._world.produce(1)
        wanted = len(TABLES) * len(self._world.produced)
        process.wait_for(lambda: self._world.settled() >= wanted)
        assert " ERROR " not in process.stderr, process.stderr
        assert "defect" not in process.stderr, process.stderr

    def _everything_sleeps(self, process: Process) -> None:
        process.pause()
        self._world.broker.pause()
        self._sleep(1, 8)
        self._world.broker.resume()
        process.resume()

    def _process_sleeps(self, process: Process) -> None:
        process.pause()
        self._sleep(1, 8)
        process.resume()

    def _broker_sleeps(self) -> None:
        self._world.broker.pause()
        self._sleep(1, 8)
        self._world.broker.resume()

    def _restart_broker(self) -> None:
        self._world.broker.stop()
        self._sleep(0, 4)
        self._world.broker.start()

    def _stop(self, process: Process) -> None:
        """As a service manager does it; the next one starts with nothing to read."""
        process.terminate()
        code = process.wait()
        assert code == 0, f"exit code {code}:\n{process.stderr}"
        process.close()
        self._process = None
        self._note("restart")

    def _sleep(self, least: float, most: float) -> None:
        time.sleep(self._chance.uniform(least, most))
