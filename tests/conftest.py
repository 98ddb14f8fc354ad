from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Protocol
from uuid import uuid4

import pytest
from playwright.sync_api import Browser

from support.azurite import AzuriteServer
from support.browser import browsing
from support.gcs import GcsServer
from support.kafka import Broker
from support.object_server import ObjectServer
from support.postgres import PostgresServer
from support.registry import SchemaRegistry
from support.s3 import S3Server
from support.spark import local_session

ROOMS = ["unit", "contract", "engine", "services", "interop", "faults"]
"""Fast ones first, whatever the order on the command line."""


class TopicFactory(Protocol):
    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


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
