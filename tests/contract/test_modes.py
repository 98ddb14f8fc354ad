"""What every write mode promises: the same content with a kill as without, one instance, a sound log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Fenced, Pipeline
from lakefeed.columns.mapping import is_mapped
from lakefeed.engine.faultpoints import END_POINT
from lakefeed.engine.inline import run_inline
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.changes import KEYED
from lakefeed.reports.verify import verify
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.mode import Change
from support.forks import run_and_kill
from support.landing import Landing

Runs = list[list[int]]
CONTENT: dict[str, Callable[[Runs], list[int]]] = {
    "append": lambda runs: [event for run in runs for event in run],
    "overwrite": lambda runs: next((run for run in reversed(runs) if run), []),
    # Every event has a key of its own.
    "upsert": lambda runs: [event for run in runs for event in run],
    "history": lambda runs: [event for run in runs for event in run],
    "deduplicate": lambda runs: [event for run in runs for event in run],
}
"""The events that a table holds after some runs, by mode: a new mode says here what it promises."""

every_mode = pytest.mark.parametrize("mode", CONTENT)


class Shop:
    """A table that is fed with made-up events, one in fifty of them broken; an event's id is its number."""

    def __init__(self, folder: Path, mode: str, more: str = "") -> None:
        self.folder, self._mode, self._more = folder, mode, more
        if mode in KEYED:
            order = "sequence_by: event_id\n    " if mode == "history" else ""
            self._more = f"keys: event_id\n    {order}{more}"
        self._runs: Runs = []
        self._events = 0

    def produce(self, events: int) -> Pipeline:
        """Let the source have so many more events, for one more run."""
        self._runs.append(list(range(self._events, self._events + events)))
        self._events += events
        (self.folder / "shop.yaml").write_text(
            f"""\
name: shop
sources: {{clicks: {{type: generate, rows: {self._events}, partitions: 2, bad_ratio: 0.02}}}}
tables:
  events:
    path: events
    from: clicks
    mode: {self._mode}
    schema: {{event_id: long, event_type: string}}
    partition_by: [event_type]
    metadata: true
    {self._more}
flush: {{rows: 100}}
"""
        )
        return Pipeline.from_file(self.folder / "shop.yaml")

    def kill(self, point: str, nth: int) -> int:
        """Run in a process that dies when it passes a point; its exit code."""
        return run_and_kill(self.folder / "shop.yaml", f"{point}:{nth}")

    def ids(self) -> list[int]:
        rows = pa.RecordBatchReader.from_stream(DeltaTable(self.folder / "events").scan(columns=["event_id"]))
        return sorted(rows.read_all()["event_id"].to_pylist())

    def check(self) -> None:
        """The table holds what its mode promises, each event once, and the log proves it."""
        letters = DeltaTable(self.folder / "shop_dead_letters").to_pyarrow_table()
        # Event n is at offset n // 2 of partition n % 2.
        origins = zip(letters["offset"].to_pylist(), letters["partition"].to_pylist(), strict=True)
        refused = [2 * offset + partition for offset, partition in origins]
        assert len(set(refused)) == len(refused) > 0
        assert self.ids() == sorted(set(CONTENT[self._mode](self._runs)) - set(refused))
        proof = verify(Pipeline.from_file(self.folder / "shop.yaml"), deep=True)
        assert proof.sound, proof


@every_mode
def test_a_run_goes_on_where_the_last_one_ended_and_one_without_events_changes_nothing(
    mode: str, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, mode)

    for events in (400, 300, 0, 150):
        run_inline(shop.produce(events))
        shop.check()


@every_mode
@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("files_written", 1),
        ("letters_committed", 1),
        ("table_committed", 1),
        ("files_written", 3),
        (END_POINT, 1),
    ],
)
def test_a_kill_changes_nothing_about_what_a_table_holds_in_the_end(
    mode: str, point: str, nth: int, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, mode)
    run_inline(shop.produce(300))
    before = shop.ids()
    pipeline = shop.produce(400)

    code = shop.kill(point, nth)
    seen = shop.ids()
    run_inline(pipeline)

    assert code == -9
    # Never empty, and never a mixture of two runs that the mode keeps apart.
    new = set(seen) - set(before)
    assert seen == before or new == set(seen) or (mode != "overwrite" and set(seen) > set(before))
    shop.check()


@every_mode
def test_a_kill_changes_nothing_in_a_table_with_column_mapping(mode: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, mode, "names: keep\n    properties: {delta.enableChangeDataFeed: 'true'}")
    shop.produce(300)
    for point in ("files_written", "table_committed"):
        assert shop.kill(point, 1) == -9
        run_inline(Pipeline.from_file(tmp_path / "shop.yaml"))
        shop.check()
        shop.produce(200)

    assert is_mapped(DeltaTable(tmp_path / "events").metadata().configuration)


@every_mode
def test_a_second_instance_is_fenced_and_writes_nothing(mode: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, mode)
    run_inline(shop.produce(300))
    pipeline = shop.produce(400)
    late = Tables(pipeline).handles["events"]
    table = late.open(pipeline.name)
    assert table is not None
    stale = dict(table.transactions)
    run_inline(pipeline)
    written = DeltaTable(tmp_path / "events").version()

    moved = {name: last + 10 for name, last in stale.items() if name.startswith("shop/clicks/")}
    change = Change([], moved, {name: stale[name] for name in moved}, {"kind": "rows", "rows": 0})
    with pytest.raises(Fenced, match="another instance of this pipeline"):
        commit(table, change, late.mode, retries=0)

    assert DeltaTable(tmp_path / "events").version() == written
    shop.check()


@every_mode
def test_files_that_others_rewrite_meanwhile_are_no_conflict(mode: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, mode)
    run_inline(shop.produce(300))
    pipeline = shop.produce(400)
    tables = Tables(pipeline)
    tables.handles["events"].open(pipeline.name)
    DeltaTable(tmp_path / "events").optimize.compact()

    run_inline(pipeline)

    shop.check()


@every_mode
def test_the_change_feed_of_a_table_adds_up_to_its_rows(mode: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, mode, "properties: {delta.enableChangeDataFeed: 'true'}")
    for events in (400, 300):
        run_inline(shop.produce(events))

    changes = DeltaTable(tmp_path / "events").load_cdf(starting_version=0).read_all()
    counts: dict[int, int] = {}
    for event, kind in zip(changes["event_id"].to_pylist(), changes["_change_type"].to_pylist(), strict=True):
        counts[event] = counts.get(event, 0) + (1 if kind == "insert" else -1)

    assert sorted(event for event, count in counts.items() if count) == shop.ids()
    assert set(counts.values()) <= {0, 1}


@every_mode
def test_rows_of_others_do_not_stop_a_run(mode: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, mode)
    run_inline(shop.produce(300))
    there = DeltaTable(tmp_path / "events").to_pyarrow_table()
    write_deltalake(tmp_path / "events", there.slice(0, 5), mode="append", partition_by=["event_type"])

    run_inline(shop.produce(100))

    proof = verify(Pipeline.from_file(tmp_path / "shop.yaml"))
    assert [one.kind for one in proof.tables[0].findings] == (["foreign"] if mode != "overwrite" else [])


@every_mode
def test_a_kill_while_a_column_is_widened_changes_nothing_about_what_a_table_holds(
    mode: str, tmp_path: Path
) -> None:
    keys = {"deduplicate": "keys: id", "upsert": "keys: id", "history": "keys: id, sequence_by: id"}
    landing = Landing(tmp_path, table=", ".join(filter(None, (f"mode: {mode}", keys.get(mode)))))
    landing.put("1.json", '{"id": 0, "v": 1}\n{"id": 1, "v": 2}\n')
    landing.run()
    landing.put("2.json", '{"id": 2, "v": 3}\n{"id": 3, "v": 4.5}\n')

    code = run_and_kill(landing.file, "widening_written:1")
    landing.run()

    table = DeltaTable(tmp_path / "rows").to_pyarrow_table()
    assert code == -9
    assert sorted(table["id"].to_pylist()) == CONTENT[mode]([[0, 1], [2, 3]])
    assert sorted(table["v"].to_pylist())[-2:] == [3.0, 4.5]
    assert not [*(tmp_path / "shop_dead_letters").rglob("*.parquet")]
    assert verify(Pipeline.from_file(landing.file), deep=True).sound
