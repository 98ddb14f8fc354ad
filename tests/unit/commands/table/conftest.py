from __future__ import annotations

import pytest

from support.command_line import Lakefeed, in_process


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lakefeed:
    """`lakefeed table ...` inside of this process: exit code, standard output, standard error."""
    return in_process(capsys, monkeypatch, "table")
