"""A world of one pipeline: its broker, its tables in memory, and a process that can be killed at any point.

Everything is in one thread's order. A point is a faultpoint of the product or a change of the store. Nothing
but the number of the point decides where a process dies or a second one comes in between.
"""

from __future__ import annotations

import errno
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow.fs as pafs
import yaml

from lakefeed import Pipeline, stores
from lakefeed.backoff import backoff
from lakefeed.engine import faultpoints
from lakefeed.engine.spark.analyzer import analyze_here
from lakefeed.sources.kafka import fetch
from lakefeed.stores import disk, read_tagged
from simulation.broker import Broker
from simulation.events import OTHER_TOPIC, PARTITIONS, TOPIC, Event
from support.analyzing import analyze_by_hand

MEMORY = Path("/dev/shm")
STORE = ("write", "delete", "commit", "committed")
"""The points that are changes of the store; `committed` is the answer to `commit`."""


_MOST = 3_000
"""Points that one process passes at most; a step of a life has some hundred."""


class Killed(BaseException):
    """The process is gone. Not an Exception: the product must not get over it."""


class Endless(BaseException):
    """A process does not come to its end. Not an Exception, for the same reason."""


class Points:
    """Counts the points that a process passes, and does what is due at one of them."""

    def __init__(self) -> None:
        self.passed = 0
        self.total = 0
        self.trace: list[str] = []
        self.away = 0
        self._at = 0
        self._action: Callable[[], None] | None = None
        self._doing: Callable[[], None] | None = None
        self._dead = False
        self._among: Collection[str] = ()
        self._steps = 0

    def begin(
        self, at: int = 0, action: Callable[[], None] | None = None, among: Collection[str] = ()
    ) -> None:
        """A new process, with an action at one of its points, or of those `among` them; 0 is none of them."""
        self.passed, self._at, self._action, self._dead = 0, at, action, False
        self._among = among
        self._steps = self.away = 0
        self.trace = []

    def again(self, points: int) -> None:
        """Do what is done now once more, after so many points."""
        self._at, self._action = self.passed + points, self._doing

    def die(self) -> None:
        """From here on nothing reaches the store any more, whatever the process still does to clean up."""
        self._dead = True
        raise Killed

    def fail(self, away: int = 0) -> None:
        """The store has a bad moment. What it was asked for may be done all the same.

        For the next `away` requests it does not answer whoever reads an entry of a log.
        """
        self.away = away
        raise OSError(errno.EIO, "Input/output error")

    def look(self) -> None:
        """A read of an entry of a log."""
        if self.away > 0:
            self.away -= 1
            raise OSError(errno.EIO, "Input/output error")

    def __call__(self, name: str) -> None:
        if self._dead:
            raise Killed
        self._steps += 1
        if self._steps > _MOST:
            raise Endless
        self.passed += not self._among or name in self._among
        self.total += 1
        self.trace.append(name)
        if self._action is not None and self.passed == self._at:
            action, self._action = self._action, None
            self._doing = action
            action()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let another process run while this one stands still."""
        kept = self.passed, self._at, self._action, self._dead, self.trace, self._among
        self.begin()
        try:
            yield
        finally:
            self.passed, self._at, self._action, self._dead, self.trace, self._among = kept


class _Store(pafs.SubTreeFileSystem):  # type: ignore[misc]
    """A disk whose changes are points."""

    points: Points

    def open_output_stream(self, path: str, *given: Any, **more: Any) -> Any:
        self.points("write")
        return super().open_output_stream(path, *given, **more)

    def delete_file(self, path: str) -> None:
        self.points("delete")
        super().delete_file(path)


class _Inline:
    """A pool without threads: what it is given runs at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """As many workers as anybody likes."""

    def submit(self, function: Callable[..., Any], *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*given))
        except BaseException as error:
            future.set_exception(error)
        return future

    def map(self, function: Callable[..., Any], *given: Any) -> Iterator[Any]:
        return map(function, *given)

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Nothing runs."""

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs."""


@contextmanager
def installed(points: Points) -> Iterator[None]:
    """Let the product run in a world: its points are counted, and it neither waits nor asks a JVM."""

    def put_new(path: Path, content: bytes, *, durable: bool = False) -> None:
        points("commit")
        put(path, content, durable=durable)
        points("committed")

    def read(store: pafs.FileSystem, path: str) -> Any:
        points.look()
        return read_tagged(store, path)

    put = disk.put_new
    store = type("Store", (_Store,), {"points": points})
    names = {name: getattr(pafs, name) for name in dir(pafs)} | {"SubTreeFileSystem": store}
    everywhere = {
        "passing": (faultpoints.passing, points),
        "read_tagged": (read_tagged, read),
        "backoff": (backoff, lambda *_: 0.0),
        "analyze_here": (analyze_here, analyze_by_hand),
        "ThreadPoolExecutor": (ThreadPoolExecutor, _Inline),
    }
    with ExitStack() as stack:
        stack.enter_context(patch.object(disk, "put_new", put_new))
        stack.enter_context(patch.object(stores, "pafs", SimpleNamespace(**names)))
        for module in [one for name, one in sys.modules.items() if name.startswith("lakefeed")]:
            for name, (before, after) in everywhere.items():
                if getattr(module, name, None) is before:
                    stack.enter_context(patch.object(module, name, after))
        yield


class World:
    """The broker, the folder with the tables, and the pipeline file."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        where = MEMORY if MEMORY.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="lakefeed-world-", dir=where))
        self.broker = Broker()
        self.broker.create(TOPIC, PARTITIONS)
        self.broker.create(OTHER_TOPIC, 1)
        self.events: dict[str, list[Event]] = {f"{TOPIC}-{number}": [] for number in range(PARTITIONS)}
        self.events[f"{OTHER_TOPIC}-0"] = []
        self.points = Points()
        self._loaded: dict[tuple[str, str], Pipeline] = {}
        """The file as it was loaded. It is immutable, so that processes may share it."""

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def save(self, document: dict[str, Any], name: str = "shop.yaml") -> None:
        """Write the pipeline file, or that of another pipeline."""
        self._loaded = {}
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        (self.folder / name).write_text(text)

    def pipeline(self, state: str = ".lakefeed", name: str = "shop.yaml") -> Pipeline:
        """Load the file, as a new process does."""
        fetch._kept.clear()
        if (name, state) not in self._loaded:
            folder = self.folder / state
            self._loaded[name, state] = Pipeline.from_file(self.folder / name, [f"state={folder}"])
        return self._loaded[name, state]

    def lose_state(self) -> None:
        """The disk of the machine is gone, with all that a run keeps there."""
        for folder in self.folder.glob(".*"):
            shutil.rmtree(folder)

    def produce(self, event: Event) -> None:
        """Let an event arrive."""
        offset = self.broker.produce(
            event.topic,
            event.partition,
            event.payload,
            key=event.key,
            milliseconds=event.milliseconds,
            headers=event.headers or None,
            gap=event.gap,
        )
        self.events[f"{event.topic}-{event.partition}"].append(replace(event, offset=offset))

    def add_partition(self) -> None:
        """One more partition, whose events nobody has read."""
        number = len(self.broker.topics[TOPIC])
        self.broker.create(TOPIC, number + 1)
        self.events[f"{TOPIC}-{number}"] = []

    def expire(self, positions: Mapping[str, int]) -> None:
        """Let the broker forget the events before these positions."""
        for number, partition in enumerate(self.broker.topics[TOPIC]):
            partition.first = max(partition.first, positions.get(f"{TOPIC}-{number}", 0))
            partition.messages = [one for one in partition.messages if one.at >= partition.first]

    def by_place(self) -> dict[tuple[str, int], Event]:
        """Every event by its partition and offset."""
        return {(name, one.offset): one for name, events in self.events.items() for one in events}

    def ends(self) -> dict[str, int]:
        """The next offset of each partition."""
        return {
            f"{TOPIC}-{number}": partition.end for number, partition in enumerate(self.broker.topics[TOPIC])
        }
