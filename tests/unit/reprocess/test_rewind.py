"""A rewind brings rows and positions back together; what it cannot bring back it refuses."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Fenced, Pipeline, TableError, UsageError
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.instance import only_instance
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from lakefeed.tables.table import LakeTable
from support.ledger import dead_letters, table_ids
from support.shop import Shop


class RewoundShop(Shop):
    """A thousand made-up events in two partitions, one in fifty cut off, into one table."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.write()

    def write(self, rows: int = 1000, time: str = "timestamp", partitions: int = 2) -> None:
        table = f"metadata: true\nschema: {{event_id: long, event_time: {time}}}"
        self.save(f"type: generate, rows: {rows}, partitions: {partitions}, bad_ratio: 0.02", table)

    def fill(self, batch: int = 100) -> Pipeline:
        return self.drain(batch)

    def positions(self) -> dict[str, int]:
        delta = DeltaTable(self.table)
        names = [f"shop/clicks/{number}" for number in range(2)]
        return {name: delta.transaction_version(name) for name in names}  # type: ignore[misc]


@pytest.fixture
def shop(tmp_path: Path) -> RewoundShop:
    return RewoundShop(tmp_path)


def test_rewound_table_is_read_again_and_every_event_is_there_once(shop: RewoundShop) -> None:
    shop.fill()
    before = DeltaTable(shop.table).version()
    letters = len(dead_letters(shop.letters))

    report = rewind(shop.pipeline, "events", to_version=3, who="me@here")
    rewound, ids = shop.positions(), table_ids(shop.table)
    sound = verify(shop.pipeline, deep=True).sound
    shop.fill()

    assert (report.from_version, report.to_version, report.version) == (before, 3, before + 1)
    assert (report.rows_now, report.rows_then) == (980, len(ids))
    assert {one.partition: (one.now, one.then, one.events) for one in report.partitions} == {
        "clicks/0": (500, rewound["shop/clicks/0"] + 1, 500 - rewound["shop/clicks/0"] - 1),
        "clicks/1": (500, rewound["shop/clicks/1"] + 1, 500 - rewound["shop/clicks/1"] - 1),
    }
    assert sound
    assert 0 < len(ids) < 980
    assert 0 < report.dead_letters_kept < letters == 20
    shop.assert_ledger(1000)


def test_rows_and_positions_come_back_in_one_commit_that_says_who_wanted_it(shop: RewoundShop) -> None:
    shop.fill()
    then = {"shop/clicks/0": 99, "shop/clicks/1": 99}

    report = rewind(shop.pipeline, "events", to_version=3, who="me@here")

    text = (shop.table / "_delta_log" / f"{report.version:020d}.json").read_text()
    actions = [json.loads(line) for line in text.splitlines()]
    told = {one["txn"]["appId"]: one["txn"]["version"] for one in actions if "txn" in one}
    (info,) = [one["commitInfo"] for one in actions if "commitInfo" in one]
    commit_info = json.loads(info["lakefeed"])
    assert {name: told[name] for name in then} == shop.positions()
    assert any("remove" in one for one in actions)
    assert (commit_info["kind"], commit_info["to"], commit_info["who"]) == ("rewind", 3, "me@here")


def test_dry_run_shows_the_same_and_changes_nothing(shop: RewoundShop) -> None:
    shop.fill()
    version = DeltaTable(shop.table).version()

    shown = rewind(shop.pipeline, "events", to_version=3, dry_run=True)
    unchanged = DeltaTable(shop.table).version()
    done = rewind(shop.pipeline, "events", to_version=3)

    assert unchanged == version
    assert shown.version is None
    assert (shown.rows_then, shown.partitions, shown.dead_letters_kept) == (
        done.rows_then,
        done.partitions,
        done.dead_letters_kept,
    )


def test_rewind_to_a_time_takes_the_version_of_that_time(shop: RewoundShop) -> None:
    shop.fill()
    history = {one["version"]: one["timestamp"] for one in DeltaTable(shop.table).history()}
    moment = dt.datetime.fromtimestamp(history[4] / 1000, dt.UTC)
    newest_then = max(version for version, time in history.items() if time <= history[4])

    report = rewind(shop.pipeline, "events", to_time=moment, dry_run=True)

    assert report.to_version == newest_then
    with pytest.raises(UsageError, match="there was no version at 2020-01-01T00:00:00"):
        rewind(shop.pipeline, "events", to_time=dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dry_run=True)


@pytest.mark.parametrize("version", [-1, 99])
def test_version_that_is_none_is_refused(shop: RewoundShop, version: int) -> None:
    shop.fill()

    with pytest.raises(
        UsageError, match=rf"version {version} cannot be the target of a rewind: the newest is \d+"
    ):
        rewind(shop.pipeline, "events", to_version=version)


def test_unknown_table_is_refused_with_the_near_name(shop: RewoundShop) -> None:
    with pytest.raises(UsageError, match=r"the pipeline has no table 'event', did you mean 'events'\?"):
        rewind(shop.pipeline, "event", to_version=1)


def test_rewind_is_refused_while_the_pipeline_runs(shop: RewoundShop) -> None:
    shop.fill()

    with only_instance(shop.pipeline), pytest.raises(Fenced, match="pipeline shop is already running"):
        rewind(shop.pipeline, "events", to_version=3)


def test_instance_elsewhere_is_fenced_by_a_rewind(shop: RewoundShop) -> None:
    shop.fill(batch=200)
    shop.write(rows=1200)
    from lakefeed.engine.batch import committer

    committed = committer.Committer.commit

    def overtaken(self: Any, *args: Any) -> Any:
        rewind(shop.pipeline, "events", to_version=2)
        return committed(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(committer.Committer, "commit", overtaken)
        with pytest.raises(Fenced, match="another instance of this pipeline has written"):
            shop.fill()
    shop.fill()

    shop.assert_ledger(1200)


def test_version_whose_files_were_vacuumed_is_refused(shop: RewoundShop) -> None:
    shop.fill()
    delta = DeltaTable(shop.table)
    delta.optimize.compact()
    delta.vacuum(0, dry_run=False, enforce_retention_duration=False)

    with pytest.raises(TableError, match=r"version 3 cannot be restored: \d+ files? of it (is|are) gone"):
        rewind(shop.pipeline, "events", to_version=3)


def test_version_that_the_log_no_longer_tells_is_refused(shop: RewoundShop) -> None:
    shop.fill()
    DeltaTable(shop.table).create_checkpoint()
    newest = DeltaTable(shop.table).version()
    for version in range(newest):
        (shop.table / "_delta_log" / f"{version:020d}.json").unlink()

    with pytest.raises(TableError, match="the log can no longer rebuild version 1"):
        rewind(shop.pipeline, "events", to_version=1)


def test_rewind_that_would_undo_what_others_wrote_is_refused_unless_it_is_wanted(shop: RewoundShop) -> None:
    shop.fill()
    schema = DeltaTable(shop.table).schema().to_arrow()
    stranger = pa.table({"event_id": [5000]}).cast(pa.schema([("event_id", pa.int64())]))
    write_deltalake(shop.table, stranger, mode="append", schema_mode="merge")

    with pytest.raises(
        TableError, match=r"would also undo other changes: version \d+: WRITE of another"
    ) as no:
        rewind(shop.pipeline, "events", to_version=3)
    shown = rewind(shop.pipeline, "events", to_version=3, dry_run=True)
    rewind(shop.pipeline, "events", to_version=3, undo_others=True)
    shop.fill()

    assert "Add --undo-others if that is what you want." in str(no.value)
    assert len(shown.undone) == 1
    assert DeltaTable(shop.table).schema().to_arrow() == schema
    shop.assert_ledger(1000)


def test_rewind_repairs_a_table_that_somebody_restored_without_its_positions(shop: RewoundShop) -> None:
    shop.fill()
    DeltaTable(shop.table).restore(3)
    broken = shop.findings()

    rewind(shop.pipeline, "events", to_version=3, undo_others=True)
    shop.fill()

    assert len(broken) == 2 and all(text.startswith("restore:") for text in broken)
    shop.assert_ledger(1000)


def test_rewind_can_itself_be_rewound(shop: RewoundShop) -> None:
    shop.fill()
    newest = DeltaTable(shop.table).version()
    rewind(shop.pipeline, "events", to_version=3)

    report = rewind(shop.pipeline, "events", to_version=newest)

    assert all(one.events == 0 for one in report.partitions)
    shop.assert_ledger(1000)


def test_positions_of_a_rewind_are_what_a_checkpoint_of_the_log_keeps(shop: RewoundShop) -> None:
    shop.fill()
    rewind(shop.pipeline, "events", to_version=3)
    DeltaTable(shop.table).create_checkpoint()
    opened = LakeTable.open("events", str(shop.table), {}, shop_store(shop))

    shop.fill()

    assert opened is not None
    assert opened.transactions["shop/clicks/0"] < 499
    shop.assert_ledger(1000)


def shop_store(shop: RewoundShop) -> Any:
    from lakefeed.stores import open_store

    return open_store(str(shop.table), {})


def test_letters_that_were_replayed_since_become_letters_again_unless_their_events_are_read_again(
    shop: RewoundShop,
) -> None:
    shop.write(rows=400, time="timestamp(ms)")
    shop.fill()
    shop.write(rows=400)
    replay(shop.pipeline, DeadLetterFilter(partition=0))
    shop.write(rows=1000)
    shop.fill()
    replayed = DeltaTable(shop.table).history()
    target = next(one["version"] for one in replayed if '"kind":"replay"' in one["lakefeed"]) - 1

    report = rewind(shop.pipeline, "events", to_version=target)
    rewound = [one["offset"] for one in dead_letters(shop.letters) if one["partition"] == 0]
    shop.fill()
    replay(shop.pipeline, DeadLetterFilter())

    assert report.dead_letters_returned == 200
    assert set(range(200)) <= set(rewound)
    shop.assert_ledger(1000)


def test_rewind_behind_a_rewind_leaves_no_event_as_a_row_and_a_dead_letter(shop: RewoundShop) -> None:
    shop.write(rows=400, time="timestamp(ms)")
    shop.fill()
    shop.write(rows=400)
    filled = DeltaTable(shop.table).version()
    replay(shop.pipeline, DeadLetterFilter())
    sent = DeltaTable(shop.table).version()
    rewind(shop.pipeline, "events", to_version=filled)
    (sent_once_more,) = replay(shop.pipeline, DeadLetterFilter())

    # The version has the rows of the first replay: those of the second are the same events.
    same = rewind(shop.pipeline, "events", to_version=sent)
    after_same = len(dead_letters(shop.letters))
    without = rewind(shop.pipeline, "events", to_version=filled)
    after_without = len(dead_letters(shop.letters))
    planned = rewind(shop.pipeline, "events", to_version=sent, dry_run=True)
    back = rewind(shop.pipeline, "events", to_version=sent)

    bad = len(dead_letters(shop.letters))
    rows = sent_once_more.rows
    assert 0 < bad < rows
    moved = [(one.dead_letters_returned, one.dead_letters_replayed) for one in (same, without, planned, back)]
    assert moved == [(0, 0), (rows, 0), (0, rows), (0, rows)]
    assert (after_same, after_without) == (bad, rows + bad)
    shop.assert_ledger(400)
