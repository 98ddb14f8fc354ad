"""Dead letters through today's pipeline: each becomes a row once, whatever happens in between."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Fenced, LakefeedError
from lakefeed.dead_letters.discard import discard
from lakefeed.dead_letters.find import DeadLetterFilter, newest_dead_letters, summaries
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import RunEvent, TableChanged
from lakefeed.handles.tables import Tables
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.reprocess import resend as replays
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from support.ledger import dead_letters, table_ids
from support.offline import drain
from support.shop import Shop

ALL = DeadLetterFilter()


class ReplayedShop(Shop):
    """Events whose times the table at first takes for epoch numbers: all are dead until that is mended."""

    def write(
        self, rows: int = 100, time: str = "timestamp", more: str = "metadata: true", **also: str
    ) -> None:
        columns = ", ".join(f"{name}: {kind}" for name, kind in {"event_time": time, **also}.items())
        table = f"schema: {{event_id: long, {columns}}}\n{more}"
        self.save(f"type: generate, rows: {rows}, partitions: 2, bad_ratio: 0.1", table)

    def fill(self, **options: Any) -> None:
        """A run with the wrong type; then the file is mended."""
        self.write(**{"time": "timestamp(ms)", **options})
        self.drain()
        self.write(**options)


@pytest.fixture
def shop(tmp_path: Path) -> ReplayedShop:
    return ReplayedShop(tmp_path)


def test_letters_that_fit_by_now_become_rows_and_the_others_stay_with_the_reason(shop: ReplayedShop) -> None:
    shop.fill()
    before = len(dead_letters(shop.letters))

    (report,) = replay(shop.pipeline, ALL)

    assert before == 100
    assert (report.rows, report.waiting, report.stranded) == (90, 0, 0)
    (again,) = report.again
    assert (again.stage, again.code, again.dead_letters) == ("decode", "bad_json", 10)
    assert "unterminated string" in again.example
    assert len(dead_letters(shop.letters)) == 10
    shop.assert_ledger(100)


def test_replayed_rows_are_what_a_run_would_have_written(shop: ReplayedShop, tmp_path: Path) -> None:
    partitioned = "metadata: true\npartition_by: [day(event_time)]"
    shop.fill(more=partitioned)
    replay(shop.pipeline, ALL)
    other = tmp_path / "other"
    other.mkdir()
    direct = ReplayedShop(other)
    direct.write(more=partitioned)

    drain(direct.file)

    rows, wanted = (DeltaTable(one.table).to_pyarrow_table().sort_by("event_id") for one in (shop, direct))
    assert rows.select(wanted.column_names).equals(wanted)
    assert {one["_offset"] * 2 + one["_partition"] == one["event_id"] for one in rows.to_pylist()} == {True}


def test_second_replay_changes_nothing(shop: ReplayedShop) -> None:
    shop.fill()
    replay(shop.pipeline, ALL)
    versions = [DeltaTable(path).version() for path in (shop.table, shop.letters)]

    (report,) = replay(shop.pipeline, ALL)

    assert (report.rows, sum(one.dead_letters for one in report.again)) == (0, 10)
    assert [DeltaTable(path).version() for path in (shop.table, shop.letters)] == versions


def test_dry_run_counts_the_same_and_writes_nothing(shop: ReplayedShop) -> None:
    shop.fill()
    files = sorted(shop.folder.rglob("*"))

    (shown,) = replay(shop.pipeline, ALL, dry_run=True)
    unchanged = sorted(shop.folder.rglob("*"))
    (done,) = replay(shop.pipeline, ALL)

    assert unchanged == files
    assert (shown.rows, shown.again, shown.versions) == (done.rows, done.again, [])


@pytest.mark.parametrize(
    "options",
    [
        {"time": "string"},
        {"more": "evolve: fail"},
        {"more": "partition_by: [event_id]"},
        {"Event_ID": "long"},
    ],
    ids=["another type", "no new columns", "another layout", "another case"],
)
def test_dry_run_refuses_what_a_replay_refuses_in_the_same_words(
    shop: ReplayedShop, options: dict[str, str]
) -> None:
    shop.fill()
    shop.write(**options)

    said = []
    for dry_run in (True, False):
        with pytest.raises(LakefeedError) as refused:
            replay(shop.pipeline, ALL, dry_run=dry_run)
        said.append(str(refused.value))

    assert said[0] == said[1]
    assert len(dead_letters(shop.letters)) == 100


def test_dry_run_counts_a_new_column_that_refuses_some_of_the_letters_as_the_replay_does(
    shop: ReplayedShop,
) -> None:
    shop.fill(price="long")
    shop.write(price="long")

    (shown,) = replay(shop.pipeline, ALL, dry_run=True)
    (done,) = replay(shop.pipeline, ALL)

    assert (shown.rows, shown.again, shown.new_columns) == (done.rows, done.again, done.new_columns)
    assert {one.code for one in shown.again} == {"bad_json", "wrong_type"}


def test_dry_run_after_a_killed_replay_promises_no_letter_that_is_a_row_already(
    shop: ReplayedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fill()
    with monkeypatch.context() as killed:
        killed.setattr(replays, "passing", lambda where: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            replay(shop.pipeline, ALL)

    (shown,) = replay(shop.pipeline, ALL, dry_run=True)
    (done,) = replay(shop.pipeline, ALL)

    assert len(table_ids(shop.table)) == 90
    assert (shown.rows, shown.again) == (done.rows, done.again)
    assert done.rows == 0


def test_a_new_path_says_at_start_and_in_the_plan_that_dead_letters_are_read_again(
    shop: ReplayedShop,
) -> None:
    shop.fill()
    shop.file.write_text(shop.file.read_text().replace("path: events", "path: events_v2"))
    told: list[str] = []

    def watch(event: RunEvent) -> None:
        if isinstance(event, TableChanged):
            told.append(event.text)

    (planned,) = plan_run(shop.pipeline).tables
    run_inline(shop.pipeline, watch)
    (report,) = replay(shop.pipeline, ALL)

    (warned,) = [text for text in planned.warnings if "had this name before" in text]
    (said,) = [text for text in told if "had this name before" in text]
    assert warned.replace("would be removed", "removed") == said
    assert warned.startswith("100 dead letters of the table that had this name before would be removed: ")
    assert report.rows == 0
    assert len(table_ids(shop.folder / "events_v2")) == 90
    assert len(dead_letters(shop.letters)) == 10


def test_letters_ask_for_new_columns_as_events_do(shop: ReplayedShop) -> None:
    shop.fill()

    (shown,) = replay(shop.pipeline, ALL, dry_run=True)
    (report,) = replay(shop.pipeline, ALL)

    assert "brand string" in report.new_columns
    assert "price double" in report.new_columns
    assert shown.new_columns == report.new_columns
    assert shown.rows == report.rows == 90
    assert "brand" in DeltaTable(shop.table).schema().to_arrow().names


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (DeadLetterFilter(partition=1), 40),
        (DeadLetterFilter(offset=3), 2),
        (DeadLetterFilter(stage="schema"), 90),
        (DeadLetterFilter(code="no_such_code"), 0),
        (DeadLetterFilter(topic="none"), 0),
        (DeadLetterFilter(source="clicks", table="events"), 90),
        (DeadLetterFilter(source="other"), 0),
        (DeadLetterFilter(until=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), 0),
        (DeadLetterFilter(since=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), 90),
    ],
)
def test_only_letters_that_are_meant_are_replayed(
    shop: ReplayedShop, wanted: DeadLetterFilter, rows: int
) -> None:
    shop.fill()

    reports = replay(shop.pipeline, wanted)

    assert sum(one.rows for one in reports) == rows
    assert len(table_ids(shop.table)) == rows
    shop.assert_ledger(100)


def test_portions_of_a_large_replay_are_commits_of_their_own(
    shop: ReplayedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "_MOST_LETTERS", 300)
    shop.fill(rows=1000)

    (report,) = replay(shop.pipeline, ALL)

    assert len(report.versions) == 4
    assert report.rows == 900
    shop.assert_ledger(1000)


@pytest.mark.parametrize("who", ["replay", "run", "discard"])
def test_replay_that_is_killed_before_the_letters_are_settled_is_finished_by_whoever_comes_next(
    shop: ReplayedShop, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    shop.fill()

    class Killed(BaseException):
        pass

    def kill(point: str) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(replays, "passing", kill)
        replay(shop.pipeline, ALL)
    proof = verify(shop.pipeline)
    left = len(dead_letters(shop.letters))
    if who == "replay":
        replay(shop.pipeline, ALL)
    elif who == "run":
        told: list[RunEvent] = []
        run_inline(shop.pipeline, told.append)
        assert TableChanged("events", "dead letters settled after a replay or rewind was cut short") in told
    else:
        discard(shop.pipeline, DeadLetterFilter(code="none"), who="me", reason="test")

    assert left == 100
    assert [str(one) for one in proof.tables[0].findings] == [
        "interrupted: version 3: a replay or rewind was interrupted before it updated its dead letters; "
        "the next run completes it"
    ]
    assert len(dead_letters(shop.letters)) == 10
    shop.assert_ledger(100)


def test_of_two_replays_at_once_one_is_refused_and_no_row_doubles(
    shop: ReplayedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fill()
    first = replays.Resend._commit

    def overtaken(self: Any, *args: Any) -> None:
        monkeypatch.setattr(replays.Resend, "_commit", first)
        replay(shop.pipeline, ALL)
        first(self, *args)

    monkeypatch.setattr(replays.Resend, "_commit", overtaken)
    with pytest.raises(Fenced):
        replay(shop.pipeline, ALL)

    shop.assert_ledger(100)


def test_letters_whose_events_are_still_ahead_wait_for_the_next_run(shop: ReplayedShop) -> None:
    shop.fill()
    replay(shop.pipeline, ALL)
    rewind(shop.pipeline, "events", to_version=0)

    (report,) = replay(shop.pipeline, ALL)
    kept = discard(shop.pipeline, ALL, who="me", reason="test")
    shop.drain()

    assert (report.rows, report.waiting) == (0, 10)
    assert (kept.dead_letters, kept.waiting) == (0, 10)
    shop.assert_ledger(100)


def test_letters_of_a_source_that_no_longer_feeds_the_table_are_told(shop: ReplayedShop) -> None:
    shop.fill()
    shop.file.write_text(shop.file.read_text().replace("clicks", "renamed"))

    (report,) = replay(shop.pipeline, ALL)

    assert (report.rows, report.stranded) == (0, 100)


def test_discard_deletes_what_is_meant_and_keeps_who_and_why(shop: ReplayedShop) -> None:
    shop.fill()
    wanted = DeadLetterFilter(stage="decode", since=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))

    shown = discard(shop.pipeline, wanted, who="me@here", reason="noise", dry_run=True)
    untouched = len(dead_letters(shop.letters))
    found = discard(shop.pipeline, wanted, who="me@here", reason="it's noise")

    assert (shown.dead_letters, shown.version, untouched) == (10, None, 100)
    assert (found.dead_letters, found.waiting) == (10, 0)
    commit_info = shop.accounts(shop.letters)[-1]
    assert (commit_info["kind"], commit_info["dead_letters"]) == ("discard", 10)
    assert (commit_info["who"], commit_info["reason"]) == ("me@here", "it's noise")
    assert {one["stage"] for one in dead_letters(shop.letters)} == {"schema"}
    assert verify(shop.pipeline, deep=True).sound


def test_letters_are_counted_by_kind_and_shown_newest_first(shop: ReplayedShop) -> None:
    shop.fill()

    kinds = summaries(Tables(shop.pipeline), ALL)
    shown = newest_dead_letters(Tables(shop.pipeline), DeadLetterFilter(stage="decode"), 3)

    assert [(one.table, one.source, one.stage, one.dead_letters) for one in kinds] == [
        ("events", "clicks", "schema", 90),
        ("events", "clicks", "decode", 10),
    ]
    assert shown.num_rows == 3
    assert set(shown.column("stage").to_pylist()) == {"decode"}


def test_pipeline_without_dead_letters_has_nothing_to_replay_or_discard(shop: ReplayedShop) -> None:
    shop.write()

    assert replay(shop.pipeline, ALL) == []
    assert discard(shop.pipeline, ALL, who="me", reason="none").dead_letters == 0
    assert summaries(Tables(shop.pipeline), ALL) == []


def test_account_of_a_replay_lists_its_letters(shop: ReplayedShop) -> None:
    shop.fill(rows=10)

    replay(shop.pipeline, ALL)

    (commit_info,) = [one for one in shop.accounts(shop.table) if one.get("kind") == "replay"]
    listed = {(group[2], offset) for group in commit_info["dead_letters"] for offset in group[4]}
    assert commit_info["rows"] == 9
    assert len(listed) == 9
    assert (1, 4) not in listed
    assert json.dumps(commit_info).count("clicks") == 2
