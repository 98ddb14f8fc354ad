"""The soak: the command line under load, while its driver, its JVM, its workers and the broker are killed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import psutil

from faults.world import World
from support.lakefeed import Process, run, start
from support.processes import wait_until

BURST = 400
SETTINGS = ["--set", "flush.interval=300ms", "--set", "flush.rows=1000", "--set", "give_up_after=120s"]


class Soak:
    """One pipeline that runs for a while. `note` is told each fault and each restart."""

    def __init__(self, world: World, chance: random.Random, note: Callable[[str], None]) -> None:
        self._world, self._chance, self._note = world, chance, note
        # Of its own, as how often it is asked depends on how fast the machine is.
        self._load = random.Random(chance.random())
        self._process: Process | None = None
        self._faults: dict[str, Callable[[Process], None]] = {
            "kill -9 of the driver and all it started": Process.kill_tree,
            "kill -9 of the driver alone": lambda process: psutil.Process(process.pid).kill(),
            "kill -9 of the JVM": lambda process: self._kill(process, "java"),
            "kill -9 of a Python worker": lambda process: self._kill(process, "pyspark"),
            "kill -9 of the broker": lambda process: self._restart_broker(),
            "SIGTERM": lambda process: process.terminate(),
        }

    def run(self, seconds: float) -> None:
        """Produce and kill for so long, then let it read to the end and check the ledger."""
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                process = self._running()
                self._live(process, self._chance.uniform(1, 4))
                name = self._chance.choice(list(self._faults))
                self._note(name)
                self._faults[name](process)
                self._live(process, self._chance.uniform(0, 2))
        finally:
            if self._process is not None:
                self._process.close()
        code, _, said = run("run", str(self._world.file), "--once")
        assert code == 0, said
        self._world.drained = True
        self._world.check()

    def _running(self) -> Process:
        """The process, started again if it has ended, as a service manager does it."""
        if self._process is not None and self._process.running:
            return self._process
        if self._process is not None:
            assert "Traceback" not in self._process.stderr, self._process.stderr
            self._process.close()
            self._note("restart")
        self._process = start("run", str(self._world.file), *SETTINGS)
        self._wait_for_commits(self._process)
        return self._process

    def _wait_for_commits(self, process: Process) -> None:
        """Wait until rows land again, so that faults do not hit only the start of Spark."""
        self._world.produce(BURST)
        seen = process.stderr.count(" rows in ")

        def moved() -> bool:
            return process.stderr.count(" rows in ") > seen or not process.running

        wait_until(moved, 300, lambda: f"no row has landed within 300 s:\n{process.stderr[-3000:]}")

    def _live(self, process: Process, seconds: float) -> None:
        """Produce for a while; nobody asks whether the process still runs."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._world.produce(self._load.randint(1, BURST))
            time.sleep(0.2)

    def _kill(self, process: Process, word: str) -> None:
        """Kill one of the processes that the driver has started, by a word of its command line."""
        try:
            found = psutil.Process(process.pid).children(recursive=True)
            chosen = [one for one in found if any(word in part for part in one.cmdline())]
            if chosen:
                self._load.choice(chosen).kill()
        except psutil.NoSuchProcess:
            return

    def _restart_broker(self) -> None:
        self._world.broker.kill()
        time.sleep(self._chance.uniform(0, 2))
        self._world.broker.start()
