from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.delta_spark import DeltaSpark
from support.zoo import unpack


@pytest.fixture(scope="session")
def delta_spark() -> Iterator[DeltaSpark]:
    """Spark with Delta's own jars, for all tests: a JVM that takes seconds to start."""
    with DeltaSpark() as spark:
        yield spark


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables that Spark wrote, to copy from."""
    return unpack(tmp_path_factory.mktemp("zoo"))
