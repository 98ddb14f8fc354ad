"""What the tests of the pipeline file share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakefeed.errors import PipelineFileError
from lakefeed.pipeline import connectors
from lakefeed.pipeline.loading.load import load

SMALL = """\
name: shop
sources:
  clicks: {type: queue, brokers: here}
tables:
  clicks: {path: lake/clicks, from: clicks}
"""


@pytest.fixture(autouse=True)
def small_connectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        connectors._ROOMS, "source", {"queue": "unit.pipeline.pipeline_connectors:QueueSource"}
    )
    formats = {
        "lines": "unit.pipeline.pipeline_connectors:LinesFormat",
        "framed": "unit.pipeline.pipeline_connectors:FramedFormat",
    }
    monkeypatch.setitem(connectors._ROOMS, "format", formats)


@pytest.fixture
def small() -> str:
    return SMALL


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    def write_file(text: str) -> Path:
        monkeypatch.chdir(tmp_path)
        Path("shop.yaml").write_text(text)
        return Path("shop.yaml")

    return write_file


@pytest.fixture
def problems(write: Callable[[str], Path]) -> Callable[..., list[str]]:
    """The problems of a file, as a user reads them; none for a sound one."""

    def problems_of(text: str, *overrides: str, **environment: str) -> list[str]:
        try:
            load(write(text), overrides, environment)
        except PipelineFileError as error:
            return str(error).splitlines()
        return []

    return problems_of
