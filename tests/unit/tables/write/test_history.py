"""History: every state of a row with its interval, whatever order changes come in."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakefeed.errors import TableError, UnknownValues
from lakefeed.tables.write import history as history_mode
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.intervals.known import Known
from lakefeed.tables.write.intervals.points import Points
from lakefeed.tables.write.keyed import HistoryRules, copy_on_write, lookup
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.keyed.layout import Layout
from lakefeed.tables.write.keyed.merge_on_read import MergeOnRead
from support.keyed_table import KeyedTable
from support.vectors import allow

LAYOUTS: dict[str, Callable[[], Layout]] = {"copy_on_write": CopyOnWrite, "merge_on_read": MergeOnRead}
SCHEMA = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string()), ("note", pa.string())])
SPAN = [pa.field("valid_from", pa.int64()), pa.field("valid_to", pa.int64())]
RULES = HistoryRules(("id",), ("seq",))


def history(folder: Path, layout: str = "copy_on_write", rules: HistoryRules = RULES) -> KeyedTable:
    schema = pa.schema([*SCHEMA, *SPAN, *([("is_current", pa.bool_())] if rules.is_current else [])])
    table = KeyedTable(folder, schema, rules, modes=HistoryMode, layout=LAYOUTS[layout]())
    if layout == "merge_on_read":
        allow(folder)
        table.restart()
    return table


def up(seq: int, v: str, **more: Any) -> dict[str, Any]:
    return {"id": 1, "seq": seq, "v": v, **more}


def gone(seq: int) -> dict[str, Any]:
    return {"op": "delete", "id": 1, "seq": seq}


def spans(table: KeyedTable) -> str:
    rows = sorted(table.rows(), key=lambda row: (row["id"], row["valid_from"]))
    return ", ".join(
        f"[{row['valid_from']},{'' if row['valid_to'] is None else row['valid_to']}) {row['v']}"
        for row in rows
    )


BEGUN = [up(10, "A"), up(20, "B")]
CASES = {
    "late change between": ([up(15, "C")], "[10,15) A, [15,20) C, [20,) B"),
    "late delete": ([gone(15)], "[10,15) A, [20,) B"),
    "late change before a delete": ([gone(25), up(22, "C")], "[10,20) A, [20,22) B, [22,25) C"),
    "change after a delete": ([gone(25), up(30, "D")], "[10,20) A, [20,25) B, [30,) D"),
    "a delete of the same time wins": ([gone(20)], "[10,20) A"),
    "delete in a gap is remembered": ([gone(15), gone(17), up(16, "D")], "[10,15) A, [16,17) D, [20,) B"),
    "delete whose trace is gone": ([gone(15), gone(12), up(13, "X")], "[10,12) A, [13,15) X, [20,) B"),
    "same values are one": ([up(25, "B")], "[10,20) A, [20,) B"),
    "split of what was one": ([up(25, "B"), gone(22)], "[10,20) A, [20,22) B, [25,) B"),
    "values again between": ([up(15, "B")], "[10,15) A, [15,) B"),
    "values of before again": ([up(20, "A")], "[10,) A"),
    "a truncation ends all": (
        [{"op": "truncate", "seq": 25}, up(22, "C")],
        "[10,20) A, [20,22) B, [22,25) C",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("together", [False, True])
def test_changes_make_the_intervals_that_they_would_in_order(
    case: str, together: bool, layout: str, tmp_path: Path
) -> None:
    changes, expected = CASES[case]
    table = history(tmp_path, layout)

    for batch in [[*BEGUN, *changes]] if together else [BEGUN, *([one] for one in changes)]:
        table.apply(*batch)

    assert spans(table) == expected
    version = table.table.version
    entry = table.apply(*BEGUN, *changes)
    assert (entry.added, entry.removed, entry.marked) == ([], [], []) or not (entry.added or entry.marked)
    assert (spans(table), entry.commit_info["stale"] + entry.commit_info["folded"]) == (
        expected,
        entry.commit_info["changes"],
    )
    assert table.table.version == version + 1


def test_a_delete_before_everything_ends_what_comes_later(tmp_path: Path) -> None:
    table = history(tmp_path)
    table.apply(gone(5))
    table.restart()

    table.apply(up(3, "Z"))

    assert spans(table) == "[3,5) Z"


def test_five_changes_in_any_order_are_as_if_in_order(tmp_path: Path) -> None:
    changes = [up(10, "A"), up(12, "A"), gone(14), up(16, "B"), up(20, "A")]
    for number, order in enumerate(itertools.permutations(changes)):
        if number % 7:
            continue
        table = history(tmp_path / str(number))
        for change in order:
            table.apply(change)
        assert spans(table) == "[10,14) A, [16,20) B, [20,) A", order


def test_an_interval_has_the_last_values_of_what_is_not_tracked(tmp_path: Path) -> None:
    table = history(tmp_path, rules=HistoryRules(("id",), ("seq",), track_except=("note",)))
    table.apply(up(10, "A", note="x"))
    table.apply(up(20, "A", note="y"), up(30, "A", note="z"))
    assert [(row["note"], row["seq"]) for row in table.rows()] == [("z", 30)]

    table.apply(gone(25))

    assert spans(table) == "[10,25) A, [30,) A"
    assert sorted(row["note"] for row in table.rows()) == ["y", "z"]
    table.apply(up(15, "C", note="c"))
    assert spans(table) == "[10,15) A, [15,20) C, [20,25) A, [30,) A"
    assert sorted(row["note"] for row in table.rows()) == ["c", "x", "y", "z"]


def test_partial_changes_take_values_of_the_state_before(tmp_path: Path) -> None:
    table = history(tmp_path)
    table.apply(up(10, "A", note="x"))

    table.apply({"id": 1, "seq": 20, "v": "B", "unchanged": ["note"]}, {**gone(30)})
    with pytest.raises(UnknownValues) as caught:
        table.apply(
            {"id": 1, "seq": 40, "v": "C", "unchanged": ["note"], "offset": 7},
            up(50, "D", note="y"),
            {"id": 1, "seq": 60, "v": "E", "unchanged": ["note"]},
        )

    found = sorted((row["v"], row["note"]) for row in table.rows())
    assert found == [("A", "x"), ("B", "x")]
    assert caught.value.changes == {("0", 7, 0)}


def test_nulls_say_nothing_where_they_are_ignored(tmp_path: Path) -> None:
    table = history(tmp_path, rules=HistoryRules(("id",), ("seq",), ignore_nulls=True))
    table.apply(up(10, "A", note="x"))

    table.apply({"id": 1, "seq": 20, "note": "y"}, {"id": 1, "seq": 30})

    assert spans(table) == "[10,20) A, [20,) A"
    assert sorted(row["note"] for row in table.rows()) == ["x", "y"]


def test_the_current_row_says_so(tmp_path: Path) -> None:
    table = history(tmp_path, rules=HistoryRules(("id",), ("seq",), is_current="is_current"))

    table.apply(*BEGUN)

    assert sorted((row["v"], row["is_current"]) for row in table.rows()) == [("A", False), ("B", True)]


def test_a_sequence_of_several_columns_has_intervals_of_both(tmp_path: Path) -> None:
    rules = HistoryRules(("id",), ("seq", "part"))
    moment = pa.struct([("seq", pa.int64()), ("part", pa.int64())])
    schema = pa.schema(
        [*SCHEMA, ("part", pa.int64()), pa.field("valid_from", moment), pa.field("valid_to", moment)]
    )
    table = KeyedTable(tmp_path, schema, rules, modes=HistoryMode)

    table.apply(up(1, "B", part=2), up(1, "A", part=1))

    ends = [(row["v"], row["valid_from"], row["valid_to"]) for row in table.rows()]
    assert sorted(ends, key=str) == [
        ("A", {"seq": 1, "part": 1}, {"seq": 1, "part": 2}),
        ("B", {"seq": 1, "part": 2}, None),
    ]


def test_a_table_without_the_columns_of_intervals_is_refused(tmp_path: Path) -> None:
    table = KeyedTable(tmp_path, SCHEMA, RULES, modes=HistoryMode)

    with pytest.raises(TableError, match="needs the column valid_from of type long, and there is none"):
        table.apply(up(1, "A"))


def test_what_was_told_last_of_a_time_counts_after_a_restart(tmp_path: Path) -> None:
    table = history(tmp_path)
    table.apply(up(58, "c"), up(60, "c"))
    table.apply(up(60, "b"), up(61, "c"))
    table.restart()

    table.apply(up(32, "a"))

    assert spans(table) == "[32,58) a, [58,60) c, [60,61) b, [61,) c"


def test_a_small_file_that_is_written_again_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = history(tmp_path)
    table.apply(*BEGUN, up(10, "other", id=2))
    read: list[str] = []
    real = copy_on_write.read_file
    monkeypatch.setattr(copy_on_write, "read_file", lambda *given: read.append(given[1].path) or real(*given))

    table.apply(up(15, "C"))

    assert spans(table) == "[10,15) A, [15,20) C, [20,) B, [10,) other"
    assert read == []


@pytest.mark.parametrize("limit", ["_HELD_FILES", "_HELD_ROWS"])
def test_large_files_are_read_again_and_not_held(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = history(tmp_path)
    table.apply(*BEGUN, up(10, "other", id=2))
    monkeypatch.setattr(lookup, limit, 10)
    held = []
    real = copy_on_write._rewrite
    monkeypatch.setattr(
        copy_on_write, "_rewrite", lambda *given: held.append(given[-1].edit.rows) or real(*given)
    )

    table.apply(up(15, "C"))

    assert spans(table) == "[10,15) A, [15,20) C, [20,) B, [10,) other"
    assert held == [None]


TRACKING = HistoryRules(("id",), ("seq",), track=("v",))


def test_a_key_that_is_told_again_and_again_to_be_as_it_was_costs_no_more_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = history(tmp_path, rules=TRACKING)
    points: list[int] = []
    real = Known.points

    def counted(known: Known) -> Points:
        found = real(known)
        points.append(len(found))
        return found

    monkeypatch.setattr(Known, "points", counted)

    for number in range(60):
        table.apply(up(10 + 2 * number, "A", note=f"n{number}"))

    assert spans(table) == "[10,) A"
    assert max(points) <= 4
    # Nothing of it is forgotten: a late change splits what was one where it belongs.
    table.apply(up(51, "B"))
    assert spans(table) == "[10,51) A, [51,52) B, [52,) A"
    assert [row["note"] for row in sorted(table.rows(), key=lambda row: row["valid_from"])] == [
        "n20",
        None,
        "n59",
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_table_that_is_truncated_and_filled_again_and_again_costs_no_more_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    table = history(tmp_path, layout)
    costs: list[tuple[int, int]] = []
    real = Known._floor_points

    def counted(known: Known, *points: Points) -> Points:
        found = real(known, *points)
        costs.append((len(found), len(known.found.numbers)))
        return found

    monkeypatch.setattr(Known, "_floor_points", counted)

    for load in range(30):
        rows = [{"id": key, "seq": 10 * load + 1, "v": "A"} for key in range(20)]
        table.apply({"op": "truncate", "seq": 10 * load}, *rows)

    # Of each key: the truncation that ends its open interval, and that interval.
    assert set(costs[1:]) == {(20, 20)}
    assert len(table.rows()) == 600
    # A late truncation still ends the interval that it falls into, and only that.
    table.apply({"op": "truncate", "seq": 105})
    ended = [row for row in table.rows() if row["valid_to"] == 105]
    assert [row["valid_from"] for row in ended] == [101] * 20
    assert len(table.rows()) == 600


def test_a_history_in_order_of_several_columns_reads_what_lasts(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("term", pa.string()), ("seq", pa.int64()), ("v", pa.string())])
    rules = HistoryRules(("id",), ("term", "seq"))
    ends = [pa.field(name, kind) for name, kind in rules.interval_types(schema).items()]
    table = KeyedTable(tmp_path, pa.schema([*schema, *ends]), rules, modes=HistoryMode)
    for seq in range(3):
        table.apply(
            {"op": "truncate", "term": "b", "seq": 2 * seq}, {"id": 1, "term": "b", "seq": 2 * seq + 1}
        )

    # The first column alone does not say which rows are over by then.
    table.apply({"op": "truncate", "term": "b", "seq": 3})
    table.apply({"op": "truncate", "term": "a", "seq": 9})

    found = [(row["valid_from"]["seq"], (row["valid_to"] or {}).get("seq")) for row in table.rows()]
    assert sorted(found, key=str) == [(1, 2), (5, None)]


def test_changes_that_share_an_interval_are_remembered_within_a_bound_and_deletions_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_mode._Memory, "most_optional", 1_000)
    table = history(tmp_path, rules=TRACKING)
    table.apply({"id": 2, "seq": 5, "v": "Z", "op": "delete"})

    for number in range(90):
        table.apply(up(10 + number, "A", note=f"n{number}"))

    table.restart()
    remembered = table.mode._tombstones.load(table.table)  # type: ignore[union-attr]
    rows = remembered.of(pa.table({"id": range(100)}))
    assert 0 < rows.filter(pc.equal(rows.column("_lakefeed_op"), 0)).nbytes <= 1_000
    table.apply({"id": 2, "seq": 3, "v": "Z"}, up(97, "B"))
    assert spans(table) == "[10,97) A, [97,98) B, [98,) A, [3,5) Z"
