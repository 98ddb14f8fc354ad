"""An HTTP source that is killed under load: what was answered with 2xx is there once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faults.http_world import PATIENCE, HttpWorld
from faults.test_disk import fill, small_disk
from lakefeed.engine.inline import run_inline
from support.http_source import append, journal_of


def test_kills_and_torn_tails_under_load_lose_and_repeat_nothing(tmp_path: Path) -> None:
    chance, world = random.Random(11), HttpWorld(tmp_path)
    with world.load():
        for number in range(5):
            with world.running() as process:
                world.wait_for(len(world.acknowledged) + 300)
                time.sleep(chance.random() / 4)
                process.send_signal(signal.SIGTERM if number == 2 else signal.SIGKILL)
                code = process.wait(120)
            assert code == (0 if number == 2 else -signal.SIGKILL), (tmp_path / "run.log").read_text()
            world.tear(chance)
        with world.running() as process:
            world.wait_for(len(world.acknowledged) + 300)
    world.drain(run_inline)

    world.check()
    assert len(world.acknowledged) > 1500
    assert max(int(file.stem) for file in world.journal.glob("*.segment")) > 0


@pytest.mark.parametrize("point", ["files_written:2", "letters_committed:2", "table_committed:3"])
def test_kill_between_the_steps_of_a_batch_loses_and_repeats_nothing(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = HttpWorld(tmp_path)
    with world.load():
        monkeypatch.setenv("LAKEFEED_KILL_AT", point)
        with world.running() as process:
            assert process.wait(120) == -signal.SIGKILL
        monkeypatch.delenv("LAKEFEED_KILL_AT")
        with world.running():
            world.wait_for(len(world.acknowledged) + 200)
    world.drain(run_inline)

    world.check()


def test_full_disk_is_503_and_nothing_that_was_answered_is_lost(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as ballast:
        world = HttpWorld(tmp_path, tmp_path / "disk" / "journal")
        with world.load(), world.running() as process:
            world.wait_for(200)
            for _ in range(3):
                before = world.refused
                fill(ballast)
                deadline = time.monotonic() + PATIENCE
                while world.refused < before + 5 and time.monotonic() < deadline:
                    time.sleep(0.02)
                assert world.refused >= before + 5
                ballast.unlink()
                world.wait_for(len(world.acknowledged) + 100)
            fill(ballast)
            process.kill()
            process.wait(120)
            ballast.unlink()
            with world.running():
                world.wait_for(len(world.acknowledged) + 100)
        world.drain(run_inline)

        world.check()
    assert (
        "cannot be written: No space left on device; requests get 503" in (tmp_path / "run.log").read_text()
    )


def test_journal_that_has_filled_its_disk_goes_on_when_tables_have_caught_up(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk"), journal_of(tmp_path / "disk" / "journal", quota=40_000) as journal:
        number = 0
        while append(journal, "orders", [b"x" * 500], **keyed(number)).error is None:
            number += 1
        journal.acknowledge({"orders": number})
        deadline = time.monotonic() + PATIENCE
        while append(journal, "orders", [b"y"]).error and time.monotonic() < deadline:
            time.sleep(0.05)

        assert journal.trouble == ""
        assert all(journal.keys.get(f"\norders\nkey-{one}") for one in range(number))
        assert journal.contents().earliest()["orders"] > 0


def keyed(number: int) -> dict[str, object]:
    return {"key": f"key-{number}", "digest": "", "rejected": [], "bad": 0}


def test_command_line_that_is_killed_and_stopped_under_load(tmp_path: Path) -> None:
    world, command = HttpWorld(tmp_path), (sys.executable, "-m", "lakefeed", "run")
    with world.load(2):
        with world.running(*command) as process:
            world.wait_for(300)
            world.wait_for_commit(process)
            process.kill()
            process.wait(120)
        with world.running(*command) as process:
            # Until the tables have a part of it, the journal may be full.
            world.wait_for_commit(process)
            world.wait_for(len(world.acknowledged) + 300)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, (tmp_path / "run.log").read_text()
    once = [*command, str(world.file), "--once"]
    done = subprocess.run(once, capture_output=True, text=True, timeout=PATIENCE)

    assert done.returncode == 0, done.stderr
    world.check()
