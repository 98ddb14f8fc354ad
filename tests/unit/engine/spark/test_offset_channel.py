from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest

from lakefeed.engine.spark.offset_channel import OffsetChannel, ReaderEnd
from lakefeed.events import OffsetRange
from support.processes import wait_until


def test_closed_channel_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    channel = OffsetChannel({"0": 0})

    channel.close()

    wait_until(lambda: not set(threading.enumerate()) - before, 120, lambda: str(threading.enumerate()))


def test_a_long_tmpdir_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))

    channel = OffsetChannel({"0": 0})
    channel.close()

    assert len(channel.address) <= 107
    assert not list(deep.iterdir())


def test_a_range_reaches_its_task_with_what_the_source_has_put_into_it() -> None:
    channel = OffsetChannel({"0": 0})
    reader = ReaderEnd(channel.address)
    task = (OffsetRange("0", 0, 2**40, {"files": ["a.parquet", "b.parquet"]}),)

    channel.open_to({"0": 2**40}, [task])
    end = reader.beyond({"0": 0})
    ((told, _),) = reader.tasks(end)
    channel.close()

    assert told == task
    assert told[0].payload == {"files": ["a.parquet", "b.parquet"]}


def test_tasks_of_another_batch_than_the_open_one_are_told_to_nobody() -> None:
    channel = OffsetChannel({"0": 0})
    reader = ReaderEnd(channel.address)

    channel.open_to({"0": 10}, [(OffsetRange("0", 0, 10),)])
    told = reader.tasks({"0": 9})
    channel.close()

    assert told == []
