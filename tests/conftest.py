from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any, Protocol
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from playwright.sync_api import Browser

from lakefeed.tables.rewrite.memory import memory_available
from support.azurite import AzuriteServer
from support.browser import browsing
from support.drivers import Drivers
from support.gcs import GcsServer
from support.kafka import Broker
from support.object_server import ObjectServer
from support.postgres import PostgresServer
from support.registry import SchemaRegistry
from support.s3 import S3Server
from support.spark import local_session


class QuietLogger(logging.Logger):
    """Stands in for PySpark's loggers of failed queries, which print what is raised as well.

    pytest adds its handler to them, and PySpark's class would turn the captured log of later tests into JSON.
    """

    def exception(self, *arguments: object, **more: object) -> None:
        """Log nothing."""


for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    logging.root.manager.loggerDict[_name] = QuietLogger(_name)


def _is_open(handle: int) -> None:
    """Stands in for a sync: a handle that is closed is an error as well."""
    os.fstat(handle)


# Each commit waits for the disk several times, which only a power cut could show, and a busy disk takes long.
# tests/unit/tables/log/test_durable.py looks at what is synced when; processes that a test starts do wait.
os.fsync = os.fdatasync = _is_open

# How long an example takes says how busy the machine is.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

MOST_WORKERS = 4
WORKER_BYTES = 4 * 2**30
ROOMS = ["unit", "contract", "simulation", "engine", "services", "interop", "faults"]
"""Fast ones first, whatever the order on the command line."""


class TopicFactory(Protocol):
    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker more than cores, because tests often wait for a server or a process; two at least.

    Each worker may have a JVM, a broker and a database, so memory limits their number.
    """
    free = memory_available() or 0
    return max(2, min(len(os.sched_getaffinity(0)) + 1, MOST_WORKERS, free // WORKER_BYTES))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Workers that share the files take the slow ones first: none of them is left to one worker at the end.
    items.sort(key=_room, reverse=hasattr(config, "workerinput"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # At once, not only at the end: a run that is ended from outside has named what was wrong.
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} failed in {report.when} after {report.duration:.0f} s", flush=True)


def _room(item: pytest.Item) -> int:
    name = item.path.relative_to(Path(__file__).parent).parts[0]
    return ROOMS.index(name) if name in ROOMS else len(ROOMS)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """One broker for all tests; a test that stops or kills it uses a broker of its own."""
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests; a test that stops or kills it, or sets it otherwise, uses one of its own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The name of a fresh database of that server, which goes with the test, and so do its slots."""
    with postgres.database() as name:
        yield name


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[AzuriteServer]:
    with AzuriteServer() as server:
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    with GcsServer() as server:
        yield server


@pytest.fixture(params=["s3", "gcs", "azure"])
def cloud(request: pytest.FixtureRequest) -> ObjectServer:
    """Each of the object stores."""
    server: ObjectServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of a file; each takes a page of its own from it.

    Not for all tests: while it runs, no other event loop can run in this thread.
    """
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="session")
def registry() -> Iterator[SchemaRegistry]:
    """A schema registry for all tests; `RegistryGate` stands in front of it where it is to fail."""
    with SchemaRegistry() as registry:
        yield registry


@pytest.fixture
def topic(broker: Broker) -> TopicFactory:
    """Makes fresh topics: `topic(partitions=3)` creates one and gives its name."""

    def create(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"events-{uuid4().hex[:12]}"
        broker.create_topic(name, partitions, config)
        return name

    return create


@pytest.fixture
def pipeline_file(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a pipeline file, given as indented text, into the test's folder."""

    def write(text: str) -> Path:
        file = tmp_path / "pipeline.yaml"
        file.write_text(dedent(text))
        return file

    return write


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """The session that pipelines run in when a test runs them in its own process.

    Starting one takes seconds.
    """
    with local_session() as session:
        yield session


@pytest.fixture
def drivers(spark: Any) -> Drivers:
    """Runs pipelines in processes that may be killed or stopped, all in that session."""
    return Drivers(spark)
