"""What a run remembers about itself."""

from __future__ import annotations

from lakefeed.engine.run_events import (
    BatchDone,
    CommitFailed,
    DeadLetterSample,
    DeadLettersWritten,
    FilesCounted,
    SourceSeen,
    SourceTrouble,
    TableChanged,
    TableReached,
    TableStopped,
    UpkeepDone,
    all_of,
)
from support.watched import NOON, WatchedRun, shop


def test_the_lag_of_a_source_is_that_of_its_slowest_table_that_is_still_fed() -> None:
    run = WatchedRun()
    run.tell(SourceSeen("clicks", {"0": 100, "1": 100}))
    run.tell(TableReached("clicks", "clicks", {"0": 90, "1": 100}))
    run.tell(TableReached("refunds", "clicks", {"0": 40, "1": 100}))

    before = run.state.view().sources[0]
    run.tell(TableStopped("refunds", "refused"))
    after = run.state.view().sources[0]

    assert (before.lags, before.lag) == ({"0": 60, "1": 0}, 60)
    assert (after.lags, after.lag) == ({"0": 10, "1": 0}, 10)


def test_lag_is_unknown_until_a_source_has_answered() -> None:
    view = WatchedRun().state.view()

    assert view.lag is None
    assert [one.lag for one in view.sources] == [None, None]
    assert [one.lag for one in view.tables] == [None, None, None]


def test_files_are_added_up_from_commits_until_the_next_count_and_an_old_count_is_not_taken() -> None:
    run = WatchedRun()
    run.tell(FilesCounted("clicks", version=7, rows=1000, files=40, small_files=30, size=9000))
    run.commit("clicks", "clicks", rows=10, version=8, files=3, size=100, small_files=2)

    added = run.state.view().tables[0]
    run.tell(FilesCounted("clicks", version=7, rows=1, files=1, small_files=1, size=1))
    still = run.state.view().tables[0]
    run.tell(UpkeepDone("clicks", "compact", 43, 2, 9100, 8000, 1.0))
    compacted = run.state.view().tables[0]

    assert (added.rows, added.files, added.small_files, added.size) == (1010, 43, 32, 9100)
    assert (still.rows, still.files) == (1010, 43)
    assert (compacted.files, compacted.small_files, compacted.size) == (2, 2, 8000)


def test_a_table_is_as_fresh_as_its_newest_event_or_its_commit_where_events_have_no_time() -> None:
    run = WatchedRun()

    run.commit("clicks", "clicks", newest=NOON - 30)
    run.commit("clicks", "clicks", newest=NOON - 90)
    run.commit("orders", "orders")
    view = run.state.view()

    assert [one.newest for one in view.tables] == [NOON - 30, NOON, None]


def test_a_trouble_is_known_since_it_began_and_its_end_is_told_once() -> None:
    run = WatchedRun()

    run.tell(SourceTrouble("orders", "broker:9092 does not answer"))
    run.clock.now += 60
    run.tell(SourceTrouble("orders", "broker:9092 still does not answer"))
    during = run.state.view().sources[1]
    run.tell(SourceTrouble("orders", ""))
    run.tell(SourceTrouble("orders", ""))
    view = run.state.view()

    assert (during.trouble, during.trouble_since) == ("broker:9092 still does not answer", NOON)
    assert view.sources[1].trouble == ""
    assert [(one.kind, one.what, one.text) for one in view.happenings] == [
        ("over", "orders", "continues"),
        ("trouble", "orders", "broker:9092 does not answer"),
    ]


def test_what_is_kept_is_bounded_however_long_a_run_lasts() -> None:
    run = WatchedRun()

    for number in range(300):
        run.clock.now += 10
        run.commit("clicks", "clicks", version=number)
        run.letters("clicks", "clicks", 1)
        run.tell(TableChanged("clicks", f"new column c{number}"))
        run.tell(BatchDone("clicks", 100, 1, 1, 0))
    view = run.state.view()

    assert (len(view.recent_dead_letters), len(view.happenings), len(view.tables[0].history)) == (8, 40, 8)
    assert view.tables[0].history[0][1].version == 299


def test_nothing_that_is_kept_holds_a_secret() -> None:
    run = WatchedRun(shop())
    secret = DeadLetterSample(
        "orders-0", 1, "decode", "bad_json", "found hunter22", '{"password": "hunter22"}'
    )

    run.tell(SourceTrouble("orders", "password hunter22 is wrong"))
    run.tell(TableStopped("orders", "s3://me:hunter22@store refuses hunter22"))
    run.tell(TableChanged("orders", "hunter22"))
    run.tell(CommitFailed("orders", "orders", "hunter22"))
    run.tell(DeadLettersWritten("orders", "orders", {("decode", "bad_json"): 1}, (secret,)))

    assert "hunter22" not in repr(run.state.view())


def test_a_watcher_that_fails_keeps_neither_the_run_nor_the_others_from_going_on() -> None:
    run = WatchedRun()
    broken: object = object()

    all_of(broken, run.state.watch)(TableChanged("clicks", "created"))  # type: ignore[arg-type]

    assert run.state.view().happenings[0].text == "created"


def test_dead_letters_are_kept_by_table_and_reason_the_most_frequent_first() -> None:
    run = WatchedRun()
    run.letters("clicks", "clicks", 2, code="bad_json", error="first")
    run.clock.now += 5
    run.letters("clicks", "clicks", 3, code="bad_json", error="second")
    run.letters("orders", "orders", 9, code="wrong_type")

    groups = run.state.view().dead_letter_groups

    assert [(one.table, one.stage, one.code, one.count) for one in groups] == [
        ("orders", "decode", "wrong_type", 9),
        ("clicks", "decode", "bad_json", 5),
    ]
    assert [one.error for one in groups[1].samples] == ["second", "first"]
    assert (groups[1].first, groups[1].last) == (NOON, NOON + 5)


def test_reasons_without_end_do_not_fill_the_memory() -> None:
    run = WatchedRun()

    for number in range(500):
        run.letters("clicks", "clicks", 1, code=f"rule_{number}")
    run.letters("clicks", "clicks", 1, code="rule_300")
    groups = run.state.view().dead_letter_groups

    assert len(groups) == 200
    assert {"rule_499", "rule_300"} <= {one.code for one in groups}


def test_lag_is_what_the_source_counts_between_positions() -> None:
    def tens(position: dict[str, int], ends: dict[str, int]) -> dict[str, int]:
        return {name: (ends[name] - at) // 10 for name, at in position.items()}

    run = WatchedRun()
    run.tell(SourceSeen("clicks", {"0": 100, "1": 100}, tens))
    run.tell(TableReached("clicks", "clicks", {"0": 50, "1": 80}))

    view = run.state.view()

    assert view.sources[0].lags == {"0": 5, "1": 2}
    assert [one.lag for one in view.tables[0].offsets["clicks"].values()] == [5, 2]
