"""Dead letters of a dropped table that was fed from a table: an event is one row or one dead letter."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, SourceError
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reprocess.replay import replay
from lakefeed.sources.delta.offset import DeltaOffset, version_start
from support.command_line import Lakefeed
from support.ledger import assert_each_once, dead_letters, table_ids

FILE = """\
name: shop
sources: {events: {type: generate, rows: ROWS}}
tables:
  bronze:
    path: bronze
    from: events
    schema: {event_id: long, price: double, user_id: USER_ID}
    evolve: ignore
  silver:
    path: silver
    from: bronze
    schema: {event_id: long, price: double}
    evolve: ignore
    expect: {cheap: price < LIMIT}
flush: {rows: 70}
"""


class Shop:
    """Bronze feeds silver, which refuses dear events."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "shop.yaml"
        self.user_id = "long"

    def pipeline(self, rows: int, limit: int) -> Pipeline:
        text = FILE.replace("ROWS", str(rows)).replace("LIMIT", str(limit)).replace("USER_ID", self.user_id)
        self.file.write_text(text)
        return Pipeline.from_file(self.file)

    def run(self, rows: int, limit: int = 300) -> None:
        run_inline(self.pipeline(rows, limit))

    def drop(self, table: str) -> None:
        shutil.rmtree(self.folder / table)

    def dead(self) -> list[int]:
        letters = dead_letters(self.folder / "shop_dead_letters")
        return [json.loads(one["payload"])["event_id"] for one in letters if one["table"] == "silver"]

    def rows(self) -> list[int]:
        return table_ids(self.folder / "silver")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.run(200)
    shop.run(400)
    return shop


def test_a_type_of_bronze_is_changed_and_silver_dropped(lakefeed: Lakefeed, shop: Shop) -> None:
    bronze, refused = shop.folder / "bronze", len(shop.dead())
    assert lakefeed("table", "replace", bronze, "--column", "user_id string", "--yes")[0] == 0
    shop.user_id = "string"
    anew = r"anew \(lakefeed rebuild FILE --table NAME --yes\), or drop the tables that it feeds"
    with pytest.raises(SourceError, match=anew):
        shop.run(400)
    shop.drop("silver")
    (warning,) = plan_run(shop.pipeline(400, 300)).tables[1].warnings
    shop.run(400)

    assert f"{refused} dead letters of the table that had this name before would be removed" in warning
    assert_each_once(range(400), shop.rows(), shop.dead())
    replay(shop.pipeline(400, 10_000), DeadLetterFilter())
    assert_each_once(range(400), shop.rows(), shop.dead())
    assert shop.dead() == []


def test_letters_of_rows_that_bronze_has_no_longer_stay_and_are_not_replayed(
    lakefeed: Lakefeed, shop: Shop
) -> None:
    gone, *_ = shop.dead()
    code, _, _ = lakefeed("table", "delete", shop.folder / "bronze", "--where", f"event_id = {gone}", "--yes")
    former = len(shop.dead())
    shop.drop("silver")
    shop.run(400)
    (_, replayed) = replay(shop.pipeline(400, 10_000), DeadLetterFilter())

    assert code == 0
    assert replayed.past == former == len(shop.dead())
    assert_each_once([one for one in range(400) if one != gone], shop.rows())
    assert gone in shop.dead()

    _, listed, _ = lakefeed("dead-letters", "list", shop.file)
    _, said, _ = lakefeed("dead-letters", "replay", shop.file)
    command = re.search(r"`lakefeed (dead-letters discard .*)`", listed)
    assert f"{former} are of a former table of this name and are not replayed" in said
    assert command
    assert lakefeed(*shlex.split(command[1]))[1] == f"{former} dead letters discarded\n"
    assert shop.dead() == []


def test_letters_of_a_bronze_that_was_made_anew_are_of_the_past(shop: Shop) -> None:
    former = sorted(shop.dead())
    for name in ("bronze", "silver"):
        shop.drop(name)
    shop.run(200)
    again = sorted(one for one in former if one < 200)
    assert sorted(shop.dead()) == sorted([*former, *again])
    assert_each_once(range(200), shop.rows(), again)

    (_, replayed) = replay(shop.pipeline(200, 10_000), DeadLetterFilter())
    shop.run(400, 10_000)

    assert (replayed.rows, replayed.past) == (len(again), len(former))
    assert_each_once(range(400), shop.rows())
    assert sorted(shop.dead()) == former


def test_letters_of_a_silver_that_reads_on_are_replayed_after_a_new_silver_had_past_ones(shop: Shop) -> None:
    DeltaTable(shop.folder / "bronze").delete("event_id = 0")
    shop.drop("silver")
    shop.run(400)
    former = len(shop.dead())
    shop.run(600)

    (_, replayed) = replay(shop.pipeline(600, 10_000), DeadLetterFilter())

    assert replayed.past < former
    assert_each_once(range(1, 600), shop.rows())


@pytest.mark.parametrize(
    ("start", "letter", "reread"),
    [
        (DeltaOffset(False, 4), DeltaOffset(False, 4, 7), False),
        (DeltaOffset(False, 4), DeltaOffset(False, 3, 7), True),
        (DeltaOffset(False, 4), DeltaOffset(True, 4, 7), True),
        (DeltaOffset(False, 4), DeltaOffset(True, 5), False),
        (version_start(4), DeltaOffset(True, 3, 7), False),
        (version_start(4), DeltaOffset(True, 5), False),
        (version_start(4), DeltaOffset(False, 3, 7), False),
        (version_start(4), DeltaOffset(False, 6, 7), True),
    ],
)
def test_a_snapshot_has_the_rows_of_versions_before_it(
    start: DeltaOffset, letter: DeltaOffset, reread: bool
) -> None:
    assert letter.is_reread_from(start) is reread
