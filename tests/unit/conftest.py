from __future__ import annotations

import pytest

from support.command_line import Lakefeed, in_process


@pytest.fixture
def lakefeed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lakefeed:
    """The command line inside of this process: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "200")
    return in_process(capsys, monkeypatch)
