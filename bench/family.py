"""A process and all that it has started: the CPU time that they used, the memory that they take."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import psutil

ROLES = ("driver", "JVM", "workers")


class Family:
    """The driver of a run, its JVM, and the Python processes that the JVM starts."""

    def __init__(self, pid: int) -> None:
        self._driver = psutil.Process(pid)
        self._used: dict[int, float] = {}

    def cpu(self) -> float:
        """Seconds that all of them have worked; of those that are gone, as last seen."""
        for one in self._members():
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                self._used[one.pid] = times.user + times.system
        return sum(self._used.values())

    def memory(self) -> dict[str, int]:
        """Bytes by role; a page that several of them share counts once, in equal parts."""
        found = dict.fromkeys(ROLES, 0)
        for one in self._members():
            with suppress(psutil.NoSuchProcess, OSError):
                found[self._role(one)] += _share(one.pid)
        return found

    def _members(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return [self._driver, *self._driver.children(recursive=True)]
        return []

    def _role(self, process: psutil.Process) -> str:
        if process.pid == self._driver.pid:
            return "driver"
        return "JVM" if process.name() == "java" else "workers"


class PeakMemory:
    """Looks at the memory of a family now and then, in a thread, until the body ends."""

    def __init__(self, family: Family, every: float = 0.25) -> None:
        self.together = 0
        self.alone = dict.fromkeys(ROLES, 0)
        self._family = family
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(self._every):
            found = self._family.memory()
            self.together = max(self.together, sum(found.values()))
            self.alone = {role: max(self.alone[role], size) for role, size in found.items()}


def _share(pid: int) -> int:
    """The proportional set size; forked workers share most of what they have imported."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
