"""This machine: Java, Python, packages, memory, open files, and room to write."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement

from lakefeed.doctor.check_result import CheckResult
from lakefeed.engine.spark.java import require_java
from lakefeed.engine.spark.session import DRIVER_MEMORY
from lakefeed.errors import JavaError
from lakefeed.figures import readable_size
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.tables.rewrite.memory import memory_available

_MEMORY_OF_A_WORKER = 256 * 1024**2
"""A worker takes 150 MB when it has imported everything; the rest is for the rows of its tasks."""
_FEWEST_FILES = 1024
LEAST_SPACE = 1024**3
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def examine(pipeline: Pipeline | None) -> Iterator[CheckResult]:
    """What every run needs."""
    yield java()
    yield CheckResult("Python", "ok", f"{platform.python_version()}, {sys.executable}")
    yield packages(list(distributions()))
    master = pipeline.spark.master if pipeline else "local[*]"
    conf = pipeline.spark.conf if pipeline else {}
    yield memory(memory_available(), conf.get("spark.driver.memory", DRIVER_MEMORY), _cores(master))
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if pipeline:
        yield state(Path(pipeline.state))


def java() -> CheckResult:
    """Whether Spark would find a Java that it can use."""
    try:
        return CheckResult("Java", "ok", str(require_java()))
    except JavaError as error:
        text, _, remedy = str(error).partition(": ")
        return CheckResult("Java", "fail", text, remedy[:1].upper() + remedy[1:])


def packages(installed: list[Distribution]) -> CheckResult:
    """Whether the installed packages are those that Lakefeed was made for."""
    versions = {_folded(found.name): found for found in reversed(installed)}
    own = versions.get("lakefeed")
    if own is None:
        return CheckResult(
            "packages", "warn", "Lakefeed itself is not installed", "Install it: pip install lakefeed"
        )
    wanted = [
        need for need in map(Requirement, own.requires or []) if not need.marker or need.marker.evaluate()
    ]
    wrong = [need for need in wanted if not _fits(need, versions.get(_folded(need.name)))]
    if wrong:
        text = "; ".join(_mismatch(need, versions.get(_folded(need.name))) for need in wrong)
        names = " ".join(f"'{need.name}{need.specifier}'" for need in wrong)
        return CheckResult("packages", "fail", text, f"Install what fits: pip install {names}")
    named = ("pyspark", "deltalake", "pyarrow", "confluent-kafka")
    return CheckResult(
        "packages", "ok", ", ".join(f"{name} {versions[name].version}" for name in named if name in versions)
    )


def memory(available: int | None, driver: str, cores: int) -> CheckResult:
    """Whether there is memory for Java and a worker for each core, with all else that runs here."""
    if available is None:
        return CheckResult("memory", "ok", "the free memory is unknown on this system")
    number = re.fullmatch(r"(\d+)([kmgt]?)b?", driver.strip().lower())
    java = int(number[1]) * _UNITS[number[2]] if number else _UNITS["g"]
    needed = java + cores * _MEMORY_OF_A_WORKER
    text = f"{readable_size(available)} free, {readable_size(needed)} needed for Java and {cores} workers"
    if available < needed:
        remedy = "Use fewer cores, with spark.master: local[2], or give Java less, with spark.driver.memory"
        return CheckResult("memory", "warn", text, remedy)
    return CheckResult("memory", "ok", text)


def open_files(limit: int) -> CheckResult:
    """Whether a process may open enough files at once."""
    if 0 <= limit < _FEWEST_FILES:
        remedy = (
            f"Raise it: ulimit -n {4 * _FEWEST_FILES}, or LimitNOFILE={4 * _FEWEST_FILES} in a systemd unit"
        )
        return CheckResult("open files", "warn", f"a process may open {limit:,}", remedy)
    return CheckResult("open files", "ok", f"a process may open {limit:,}" if limit >= 0 else "no limit")


def state(folder: Path) -> CheckResult:
    """Whether the state directory can be made and written, and whether there is room on its disk."""
    nearest = nearest_directory(folder)
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return CheckResult(
            "state", "fail", f"{nearest} cannot be written", "Set `state` to a folder that can"
        )
    free = shutil.disk_usage(nearest).free
    text = f"{folder} can be written, {readable_size(free)} free"
    if free < LEAST_SPACE:
        return CheckResult("state", "warn", text, "Free some space, or set `state` to another disk")
    return CheckResult("state", "ok", text)


def nearest_directory(path: Path) -> Path:
    """The path itself, or the nearest directory above it that exists."""
    return next(each for each in (path, *path.parents) if each.exists())


def _cores(master: str) -> int:
    """How many workers run on this machine: none where the master is elsewhere."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if local is None:
        return 0
    return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)


def _folded(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _fits(need: Requirement, found: Distribution | None) -> bool:
    return found is not None and need.specifier.contains(found.version, prereleases=True)


def _mismatch(need: Requirement, found: Distribution | None) -> str:
    return f"{need.name} is {found.version if found else 'missing'}, required is {need.specifier}"
