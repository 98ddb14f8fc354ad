"""The ledger of a run that goes on for long: compacted meanwhile, and without files that are gone."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import DataLoss, Pipeline
from lakefeed.errors import SourceUnavailable
from lakefeed.reports.verify import verify
from lakefeed.reprocess.rewind import rewind
from lakefeed.sources import source_of
from lakefeed.sources.files import ledger
from support.landing import Landing


def line(number: int) -> str:
    return f'{{"id": {number}}}\n'


def test_ledger_is_compacted_while_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_MANY_FILES", 4)
    landing = Landing(tmp_path)
    client = source_of(Pipeline.from_file(landing.file), "drops").client("shop", "drops")
    client.begin()
    client.start()
    deadline = time.monotonic() + 240

    for number in range(12):
        landing.put(f"{number}.json", line(number), 1000)
        while client.latest()["0"] >> 32 < number + 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    assert len(DeltaTable(tmp_path / "shop_drops_files").file_uris()) < 4
    assert len(landing.ledger()) == 12


def test_files_that_after_took_away_leave_the_ledger_and_their_names_are_free(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, after: delete, forget_after: 1ms")
    for number in range(3):
        landing.put(f"{number}.json", line(number), 1000)
    landing.run()
    before = DeltaTable(tmp_path / "rows").version()
    landing.put("0.json", line(10), 500)
    landing.run()
    landing.run()

    assert landing.rows("id") == [0, 1, 10, 2]
    assert landing.states() == {"4 0.json": "deleted"}, "by the last number the next one is known"
    assert verify(Pipeline.from_file(landing.file)).sound
    with pytest.raises(DataLoss, match="`forget_after` has taken 3 files out of the ledger"):
        rewind(Pipeline.from_file(landing.file), "rows", to_version=before - 1)


def test_file_that_was_forgotten_and_comes_back_is_not_read_again_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    landing = Landing(tmp_path, "format: json, forget_after: 1ms")
    away = landing.put("away.json", line(1), 1000)
    landing.put("kept.json", line(2), 2000)
    landing.put("last.json", line(3), 3000)
    landing.run()
    away.unlink()
    landing.run()
    left = landing.states()
    landing.put("away.json", line(1), 1000)
    landing.put("late.json", line(4), 900)
    landing.put("new.json", line(5), 1500)

    with caplog.at_level(logging.WARNING, "lakefeed"):
        landing.run()

    assert left == {"2 kept.json": "read", "3 last.json": "read"}
    assert landing.rows("id") == [1, 2, 3, 5]
    assert "2 files such as " in caplog.text and "late.json may have been read before" in caplog.text
    landing.put("late.json", line(4), 4000)
    landing.run()
    assert landing.rows("id") == [1, 2, 3, 4, 5]


def test_listing_that_fails_says_of_no_file_that_it_is_gone(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, forget_after: 1ms")
    for number in range(3):
        landing.put(f"{number}.json", line(number), 1000)
    landing.run()
    client = source_of(Pipeline.from_file(landing.file), "drops").client("shop", "drops")
    client.begin()
    client.check({"0": 4 << 32}, client.marks())
    client.start()
    client.latest()
    client.acknowledge({"0": 4 << 32})

    # A disk on the network is away for a moment.
    landing.into.rename(tmp_path / "away")
    deadline = time.monotonic() + 240
    with pytest.raises(SourceUnavailable, match="does not exist"):
        while time.monotonic() < deadline:
            client.latest()
            time.sleep(0.05)
    client.close()

    assert landing.states() == {f"{number + 1} {number}.json": "read" for number in range(3)}
