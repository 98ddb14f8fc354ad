"""Dead letters of a route: each becomes a row of the table that it belongs to, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.dead_letters.discard import discard
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from lakefeed.reprocess import resend
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from support.ledger import assert_each_once, dead_letters, table_ids
from support.offline import drain

ALL = DeadLetterFilter()
KINDS = ("view", "cart", "purchase")


class RoutedShop:
    """One table for each type of event. At first there may be one only: the events of the others are dead."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "shop.yaml"

    def write(self, rows: int = 100, tables: int = 10, more: str = "") -> None:
        self.file.write_text(
            f"""\
name: shop
sources: {{clicks: {{type: generate, rows: {rows}, partitions: 2, bad_ratio: 0.1}}}}
tables:
  events:
    route: lake/{{event_type}}
    max_tables: {tables}
    from: clicks
    {more}
"""
        )

    def fill(self, **options: Any) -> None:
        self.write(tables=1, **options)
        self.drain()
        self.write(**options)

    def drain(self) -> None:
        drain(self.file)

    @property
    def pipeline(self) -> Pipeline:
        return Pipeline.from_file(self.file)

    @property
    def letters(self) -> list[dict[str, Any]]:
        return dead_letters(self.folder / "lake" / "shop_dead_letters")

    def tables(self) -> set[str]:
        return {path.parent.name for path in (self.folder / "lake").glob("*/_delta_log")}

    def assert_ledger(self, rows: int) -> None:
        found = [
            one for kind in KINDS if kind in self.tables() for one in table_ids(self.folder / "lake" / kind)
        ]
        dead = [one["offset"] * 2 + one["partition"] for one in self.letters]
        assert_each_once(range(rows), found, dead)


@pytest.fixture
def shop(tmp_path: Path) -> RoutedShop:
    return RoutedShop(tmp_path)


def test_letters_become_rows_of_tables_that_are_made_for_them(shop: RoutedShop) -> None:
    shop.fill()
    assert len(shop.tables() & {*KINDS}) == 1
    before = len(shop.letters)

    (report,) = replay(shop.pipeline, ALL)

    assert {*KINDS} <= shop.tables()
    assert (report.table, report.rows, len(shop.letters)) == ("events", before - 10, 10)
    assert [(one.code, one.dead_letters) for one in report.again] == [("bad_json", 10)]
    shop.assert_ledger(100)
    assert verify(shop.pipeline, deep=True).sound

    # The new tables go on where the others are.
    shop.write(rows=200)
    shop.drain()
    shop.assert_ledger(200)
    (nothing,) = replay(shop.pipeline, ALL)
    assert nothing.rows == 0
    shop.assert_ledger(200)


def test_dry_run_counts_the_same_and_writes_nothing(shop: RoutedShop) -> None:
    shop.fill()
    before = {path for path in shop.folder.rglob("*") if path.is_file()}

    (foreseen,) = replay(shop.pipeline, ALL, dry_run=True)

    assert {path for path in shop.folder.rglob("*") if path.is_file()} == before
    (done,) = replay(shop.pipeline, ALL)
    assert (foreseen.rows, foreseen.again) == (done.rows, done.again)


@pytest.mark.parametrize("who", ["replay", "run", "discard", "dry run"])
def test_replay_that_is_killed_between_two_tables_is_finished_by_whoever_comes_next(
    shop: RoutedShop, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    shop.fill()
    dead = len(shop.letters)
    with monkeypatch.context() as killed:
        killed.setattr(resend, "passing", lambda where: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            replay(shop.pipeline, ALL)
    assert len(shop.letters) == dead

    if who == "run":
        shop.write(rows=101)
        shop.drain()
        assert len(shop.letters) < dead
        shop.assert_ledger(101)
    elif who == "discard":
        discard(shop.pipeline, DeadLetterFilter(table="events", code="none"), who="me", reason="none")
        assert len(shop.letters) < dead
        shop.assert_ledger(100)
    elif who == "dry run":
        (foreseen,) = replay(shop.pipeline, ALL, dry_run=True)
        replay(shop.pipeline, ALL)
        first = sum(len(table_ids(shop.folder / "lake" / kind)) for kind in KINDS)
        assert 0 < foreseen.rows < first
    replay(shop.pipeline, ALL)

    assert len(shop.letters) == 10
    shop.assert_ledger(101 if who == "run" else 100)
    assert verify(shop.pipeline, deep=True).sound


def test_a_rewind_of_one_table_returns_its_letters(shop: RoutedShop) -> None:
    shop.fill()
    (first,) = shop.tables() & {*KINDS}
    replay(shop.pipeline, ALL)
    new = next(kind for kind in KINDS if kind != first)
    rows = len(table_ids(shop.folder / "lake" / new))

    done = rewind(shop.pipeline, f"events/{new}", to_version=0)

    assert (done.dead_letters_returned, len(shop.letters)) == (rows, 10 + rows)
    replay(shop.pipeline, ALL)
    shop.assert_ledger(100)


def test_letters_of_a_route_without_a_table_wait(shop: RoutedShop) -> None:
    columns = "event_id: long, event_type: string"
    shop.write(more=f"schema: {{{columns}, event_time: timestamp(ms)}}")
    shop.drain()
    shop.write(more=f"schema: {{{columns}, event_time: timestamp}}")

    (report,) = replay(shop.pipeline, ALL)
    assert (report.of_no_table, report.rows) == (100, 0)

    discard(shop.pipeline, ALL, who="me", reason="no table yet")
    shop.drain()
    shop.assert_ledger(100)


def test_replayed_changes_of_a_route_obey_the_sequence(tmp_path: Path) -> None:
    """Times as text are dead at first, and fit once the column takes them."""

    def write(time: str) -> Path:
        file = tmp_path / "shop.yaml"
        file.write_text(
            f"""\
name: shop
sources: {{drops: {{type: files, path: in, format: json, settle: 1ms}}}}
tables:
  rows:
    route: lake/{{kind}}
    from: drops
    mode: upsert
    keys: id
    sequence_by: seq
    schema: {{id: long, seq: long, kind: string, at: {time}}}
"""
        )
        return file

    dead = "2026-03-02T10:00:00Z"
    events = [
        {"id": 1, "seq": 7, "kind": "a", "at": 1},
        {"id": 1, "seq": 5, "kind": "a", "at": dead},
        {"id": 2, "seq": 1, "kind": "a", "at": 1},
        {"id": 2, "seq": 9, "kind": "a", "at": dead},
        {"id": 3, "seq": 1, "kind": "b", "at": dead},
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.json").write_text("\n".join(map(json.dumps, events)))
    run_inline(Pipeline.from_file(write("timestamp(ms)")))
    pipeline = Pipeline.from_file(write("timestamp"))

    (report,) = replay(pipeline, ALL)
    (again,) = replay(pipeline, ALL)

    assert (report.rows, again.rows) == (3, 0)
    rows = [row for kind in "ab" for row in content(tmp_path / "lake" / kind)]
    assert sorted((row["id"], row["seq"]) for row in rows) == [(1, 7), (2, 9), (3, 1)]
    assert verify(pipeline, deep=True).sound


def content(table: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    return rows
