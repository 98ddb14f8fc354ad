from __future__ import annotations

from lakefeed.events import lowest
from lakefeed.tables.positions import application_id, mark_id, marks_of, positions_of


def test_position_is_one_beyond_the_last_offset_in_the_log() -> None:
    transactions = {application_id("shop", "clicks", "topic-0"): 41}

    assert positions_of(transactions, "shop", "clicks") == {"topic-0": 42}


def test_positions_of_other_pipelines_sources_and_dead_letters_are_left_out() -> None:
    transactions = {
        application_id("shop", "clicks", "t-0"): 1,
        application_id("shop", "clicks2", "t-0"): 2,
        application_id("shop2", "clicks", "t-0"): 3,
        application_id("shop", "clicks", "t-0", dead_letters_of="events"): 4,
        mark_id("shop", "clicks", "t"): 5,
    }

    assert positions_of(transactions, "shop", "clicks") == {"t-0": 2}
    assert positions_of(transactions, "shop", "clicks", dead_letters_of="events") == {"t-0": 5}
    assert marks_of(transactions, "shop", "clicks") == {"t": 5}


def test_lowest_takes_each_partition_from_the_table_that_is_furthest_behind() -> None:
    assert lowest([{"0": 5, "1": 9}, {"0": 7, "1": 3}]) == {"0": 5, "1": 3}
