from __future__ import annotations

from pathlib import Path

from lakefeed.upkeep.schedule import Schedule


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_first_interval_begins_when_a_table_is_first_seen(tmp_path: Path) -> None:
    clock = Clock()
    schedule = Schedule(tmp_path / "upkeep.json", clock)

    at_first = schedule.seconds_until("events", "compact", 600)
    clock.now += 601

    assert at_first == 600
    assert schedule.seconds_until("events", "compact", 600) == -1


def test_interval_goes_on_over_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    Schedule(tmp_path / "upkeep.json", clock).wait("events", "vacuum", 86_400, 86_400)
    clock.now += 80_000

    restarted = Schedule(tmp_path / "upkeep.json", clock)

    assert restarted.seconds_until("events", "vacuum", 86_400) == 6_400


def test_clock_that_is_set_back_puts_nothing_off_for_longer_than_its_interval(tmp_path: Path) -> None:
    clock = Clock()
    schedule = Schedule(tmp_path / "upkeep.json", clock)
    schedule.wait("events", "compact", 600, 600)
    clock.now -= 500_000

    assert schedule.seconds_until("events", "compact", 600) == 600


def test_operation_that_gave_way_is_due_again_soon(tmp_path: Path) -> None:
    schedule = Schedule(tmp_path / "upkeep.json", Clock())

    schedule.wait("events", "delete", 86_400, 60)
    schedule.wait("events", "compact", 5, 60)

    assert schedule.seconds_until("events", "delete", 86_400) == 60
    assert schedule.seconds_until("events", "compact", 5) == 5


def test_broken_or_unwritable_file_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "upkeep.json").write_text("{")
    nowhere = tmp_path / "a file"
    nowhere.write_text("")

    broken = Schedule(tmp_path / "upkeep.json", Clock())
    unwritable = Schedule(nowhere / "upkeep.json", Clock())

    assert broken.seconds_until("events", "compact", 600) == 600
    assert unwritable.seconds_until("events", "compact", 600) == 600
