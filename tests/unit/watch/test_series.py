from __future__ import annotations

import pytest

from lakefeed.figures import ago, per_second, short
from lakefeed.watch.series import Rate, Series


def test_a_rate_goes_over_its_window_and_not_further_back_than_the_beginning() -> None:
    rate = Rate(window=10, began=100)

    rate.add(102, 50)

    assert rate.now(102) == 25
    assert rate.now(110) == 5
    assert rate.now(113) == 0


def test_a_series_gives_amounts_a_second_and_leaves_out_the_step_that_is_not_over() -> None:
    series = Series()
    for now in (1000, 1009, 1010, 1020):
        series.add(now, 50)

    points = series.points(now=1025, began=1000)

    assert points[-2:] == [10, 5]
    assert sum(points[:-2]) == 0


def test_an_hour_has_at_most_sixty_points_and_forgets_what_is_older() -> None:
    series = Series()
    for step in range(2000):
        series.add(step * 10, 10)

    points = series.points(now=20_000, began=0)

    assert points == [1.0] * 60


def test_a_level_stays_where_it_was_until_it_is_set_again() -> None:
    level = Series(level=True)
    level.add(1000, 7)
    level.add(1001, 9)
    level.add(1060, 3)

    points = level.points(now=1125, began=1000)

    assert points[0] == 9
    assert points[-1] == 3
    assert set(points) == {9, 3}


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (short(950), "950"),
        (short(826_967), "826,967"),
        (short(1_250_000), "1.2M"),
        (short(123_456_789_012), "123B"),
        (per_second(0), "0/s"),
        (per_second(0.44), "0.4/s"),
        (per_second(1200), "1,200/s"),
        (ago(0.4), "0.4 s"),
        (ago(119), "119 s"),
        (ago(3000), "50 min"),
        (ago(3 * 86_400), "3 days"),
    ],
)
def test_figures_are_short(shown: str, text: str) -> None:
    assert shown == text


def test_a_day_is_kept_in_coarser_steps_and_drawn_where_it_is_asked_for() -> None:
    series = Series()
    for step in range(0, 24 * 360):
        series.add(step * 10, 10)
    now = 24 * 3600

    hour, quarter = series.points(now, 0), series.points(now, 0, 900)
    six, day = series.points(now, 0, 6 * 3600), series.points(now, 0, 24 * 3600)

    assert hour == [1.0] * 60
    assert len(quarter) <= 60 and set(quarter) == {1.0}
    assert len(six) <= 60 and set(six) == {1.0}
    assert len(day) <= 60 and set(day) == {1.0}
