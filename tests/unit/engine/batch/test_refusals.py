"""Which share of events is refused: when that is told, and when a table stops for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, TableError
from lakefeed.columns.inferred import inferred_from
from lakefeed.engine.batch.manifest import TableManifest
from lakefeed.engine.batch.refusals import Refusals, RefusedShare
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import (
    Committed,
    DeadLetterSample,
    RefusingMany,
    RunEvent,
    SchemaInferred,
    SourceStopped,
    TableStopped,
    unwatched,
)
from lakefeed.handles.table_plan import TableId
from lakefeed.testing import Sample
from lakefeed.testing.landed import _moved
from lakefeed.watch.log_lines import LogLines
from lakefeed.watch.state import RunState

SHOP = """\
name: shop
sources:
  orders: {type: kafka, brokers: "localhost:9", topics: [orders], format: json}
tables:
  orders: {path: lake/orders, from: orders}
  copies: {path: lake/copies, from: orders, schema: {id: long}, evolve: ignore}
"""
ODD = DeadLetterSample("0", 7, "schema", "wrong_type", 'total: expected double, got "n/a"')


def bad(read: int, refused: int) -> RefusedShare:
    return RefusedShare(read, refused, {"schema/wrong_type": refused}, (ODD,))


def test_more_than_a_twentieth_is_told_once_and_again_when_it_is_over() -> None:
    refusals = Refusals("orders", None)

    told = [
        refusals.add("t", batch) for batch in (bad(100, 5), bad(100, 6), bad(500, 50), RefusedShare(5_000, 0))
    ]

    assert told[0] is None and told[2] is None
    assert told[1] == RefusingMany(
        "t",
        "orders",
        "11 of the last 200 events (5.5%) became dead letters",
        'most often wrong_type: total: expected double, got "n/a" (partition 0, offset 7)',
    )
    assert told[3] is not None and told[3].text == ""
    assert refusals.add("t", bad(1_000, 200)) is not None


def test_a_handful_of_events_is_no_share() -> None:
    refusals = Refusals("orders", 0.5)

    assert refusals.limit("t", bad(19, 19)) is None
    assert refusals.add("t", bad(19, 19)) is None
    assert refusals.limit("t", bad(1, 1)) is not None


def test_old_events_leave_the_count() -> None:
    refusals = Refusals("orders", None)
    refusals.add("t", RefusedShare(100_000, 0))

    told = [refusals.add("t", bad(600, 60)) for _ in range(2)]

    assert told[0] is None
    assert told[1] is not None and told[1].share.startswith("120 of the last 1,200 events")


def test_what_was_a_dead_letter_before_is_refused_by_nobody_now() -> None:
    found = TableManifest(TableId("t"), dead_letters={"0": 60, "1": 10}, refusals={"schema/wrong_type": 8})

    batch = RefusedShare.of(162, found)

    assert (batch.read, batch.refused) == (100, 8)
    assert Refusals("orders", 0.5).limit("t", batch) is None


def test_a_batch_that_passes_the_limit_is_stopped_and_one_below_it_never() -> None:
    refusals = Refusals("orders", 0.5)
    refusals.add("t", RefusedShare(60, 0))

    assert refusals.limit("t", bad(100, 50)) is None
    assert refusals.limit("t", bad(100, 60)) is None
    error = refusals.limit("t", bad(100, 90))

    assert error is not None
    assert str(error).splitlines() == [
        "table t: 90 of 100 events (90.0%) would become dead letters, more than "
        '`dead_letters.stop_above: 50%`; most often wrong_type: total: expected double, got "n/a" '
        "(partition 0, offset 7).",
        "None of these events was written. Correct `schema` or the producer, or allow more, then "
        "start again.",
    ]
    assert not error.retryable


class Ears:
    def __init__(self) -> None:
        self.refusals: list[RefusingMany] = []
        self.letters: list[tuple[str, int]] = []
        self.stops: list[str] = []
        self.columns: dict[str, list[str]] = {}
        self.seen_in: list[int] = []

    def __call__(self, event: RunEvent) -> None:
        match event:
            case RefusingMany():
                self.refusals.append(event)
            case Committed():
                if event.dead_letters:
                    self.letters.append((event.table, event.dead_letters))
            case SourceStopped(text=text) | TableStopped(text=text):
                self.stops.append(text)
            case SchemaInferred(table=table, lines=lines, events=events):
                self.columns[table] = list(lines)
                self.seen_in.append(events)


def shop(folder: Path, events: list[object], more: str = "") -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(SHOP + more)
    return _moved(Pipeline.from_file(file), {"orders": [Sample(json=one) for one in events]}, folder / "run")


def test_a_run_tells_what_it_saw_chose_and_refused(tmp_path: Path) -> None:
    events = [
        {
            "id": n,
            "a": "x" if n % 25 == 0 else n,
            "b": "x" if n % 25 == 1 else n,
            "c": [] if n % 25 > 22 else n,
        }
        for n in range(100)
    ]
    ears = Ears()

    run_inline(shop(tmp_path, events), ears)

    assert ears.columns["orders"] == [
        "id  long  100 numbers",
        "a   long  96 numbers, 4 strings -> those 4 become dead letters",
        "b   long  96 numbers, 4 strings -> those 4 become dead letters",
        "c   long  92 numbers",
    ]
    assert ears.seen_in == [100]
    (told,) = ears.refusals
    assert told.table == "orders"
    assert told.share == "16 of the last 100 events (16.0%) became dead letters"
    assert told.reason.startswith('most often wrong_type: a: expected long, got "x"')
    assert "declare `schema: {a: json, b: json, c: json}`" in told.advice


def test_a_table_at_a_new_path_reads_its_dead_letters_again_and_says_so(tmp_path: Path) -> None:
    pipeline = shop(tmp_path, [{"id": "x" if n % 3 else n} for n in range(90)])
    first, second = Ears(), Ears()

    run_inline(pipeline, first)
    moved = pipeline.tables["copies"].model_copy(update={"path": str(tmp_path / "elsewhere")})
    run_inline(pipeline.model_copy(update={"tables": pipeline.tables | {"copies": moved}}), second)

    assert [one.share for one in first.refusals] == ["60 of the last 90 events (66.7%) became dead letters"]
    assert first.letters == [("copies", 60)]
    assert DeltaTable(moved.path).to_pyarrow_table().num_rows == 30
    assert (second.refusals, second.letters) == (first.refusals, first.letters)


def test_a_table_stops_before_the_batch_that_passes_the_limit_and_stops_again_at_the_next_start(
    tmp_path: Path,
) -> None:
    events = [{"id": "x" if n % 3 else n} for n in range(90)]
    pipeline = shop(tmp_path, events, "dead_letters: {stop_above: 50%}\n")
    said = []
    for _ in range(2):
        ears = Ears()
        with pytest.raises(TableError):
            run_inline(pipeline, ears)
        said.append(ears.stops)

    assert said[0] == said[1]
    assert len(said[0]) == 1 and said[0][0].startswith("table copies: 60 of 90 events (66.7%) would become")
    copies = DeltaTable(pipeline.tables["copies"].path)
    assert copies.to_pyarrow_table().num_rows == 0
    assert DeltaTable(pipeline.tables["orders"].path).to_pyarrow_table().num_rows == 90
    assert not DeltaTable.is_deltatable(pipeline.dead_letters_path)

    allowed = pipeline.model_copy(
        update={"dead_letters": pipeline.dead_letters.model_copy(update={"stop_above": 0.7})}
    )
    run_inline(allowed, unwatched)

    assert DeltaTable(pipeline.tables["copies"].path).to_pyarrow_table().num_rows == 30
    assert DeltaTable(pipeline.dead_letters_path).to_pyarrow_table().num_rows == 60


def test_columns_of_a_single_event_come_with_a_caution(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lakefeed")
    pipeline = shop(tmp_path, [{"id": 1}])

    run_inline(pipeline, LogLines(RunState(pipeline)).watch)

    told = [record.getMessage() for record in caplog.records if "inferred" in record.getMessage()]
    assert told == [
        "orders: columns inferred from 1 event; declare `schema` if later events may differ:\n"
        "  id  long  1 number"
    ]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (19, "inferred from 19 events; declare `schema` if later events may differ"),
        (20, "inferred from 20 events"),
    ],
)
def test_caution_ends_at_twenty_events(events: int, said: str) -> None:
    assert inferred_from(events) == said
