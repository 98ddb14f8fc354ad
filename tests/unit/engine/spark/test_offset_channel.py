from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest

from lakefeed.engine.spark.offset_channel import OffsetChannel
from support.processes import wait_until


def test_closed_gate_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    channel = OffsetChannel({"0": 0})

    channel.close()

    wait_until(lambda: not set(threading.enumerate()) - before, 5, lambda: str(threading.enumerate()))


def test_a_long_tmpdir_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))

    channel = OffsetChannel({"0": 0})
    channel.close()

    assert len(channel.address) <= 107
    assert not list(deep.iterdir())
