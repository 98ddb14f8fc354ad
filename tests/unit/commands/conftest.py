from __future__ import annotations

from pathlib import Path

import pytest

from support.dead_shop import write
from support.offline import drain
from support.secret_shop import CANARIES


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A hundred events, of which none became a row; the reason is mended by now."""
    drain(write(tmp_path, time="timestamp(ms)"))
    return write(tmp_path)


@pytest.fixture
def canaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that hold secrets, which nobody may read anywhere."""
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
