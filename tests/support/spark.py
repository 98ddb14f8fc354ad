"""One Spark session for all tests that run pipelines inside the test process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakefeed.engine.spark.session import own_session


@contextmanager
def local_session() -> Iterator[Any]:
    with (
        tempfile.TemporaryDirectory(prefix="lakefeed-spark-") as folder,
        own_session("tests", "local[2]", {}, Path(folder) / "spark.log") as session,
    ):
        yield session
