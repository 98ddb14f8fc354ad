"""Options that cut other records out of files, while dead letters wait whose events are still to be read."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.dead_letters.predecessor import Owner, remove_outdated
from lakefeed.handles.tables import Tables
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from lakefeed.sources import PARTITION
from lakefeed.sources.files.offset import file_start
from support.forks import run_and_kill
from support.landing import Landing

LINES = "format: {type: csv, columns: [id]}"
HEADER = "format: {type: csv, header: true}"
IDS = "schema: {id: long}"


def replayed(landing: Landing) -> list[object]:
    """The ids of all rows after everything that can be replayed is a row."""
    replay(Pipeline.from_file(landing.file), DeadLetterFilter(), who="me")
    return landing.rows("id")


@pytest.mark.parametrize(
    ("before", "after", "content"),
    [
        ("format: json", LINES, "1\n3\n5\n"),
        ("format: json", HEADER, "id\n1\n3\n5\n"),
        (
            "format: json, records: items",
            "format: json, records: data",
            '{"data":\n[{"id": "1"},\n{"id": "3"}, {"id": "5"}]}',
        ),
        ("format: json", "format: json, encoding: utf-16-le", '{"id": "1"}\n{"id": "3"}\n{"id": "5"}\n'),
    ],
)
def test_every_event_is_a_row_once_when_all_were_refused_and_the_format_is_corrected(
    tmp_path: Path, before: str, after: str, content: str
) -> None:
    landing = Landing(tmp_path, before)
    landing.put("a.txt", content.encode("utf-16-le" if "utf-16" in after else "utf-8"), 1000)
    landing.run()
    refused = len(landing.letters())
    landing.set(after)

    (told,) = plan_run(Pipeline.from_file(landing.file)).tables
    landing.run()

    assert (
        refused and f"{refused} dead letter" in str(told) and "would be removed: the source cuts" in str(told)
    )
    assert landing.rows("id") == ["1", "3", "5"]
    assert landing.letters() == []
    assert landing.is_sound


def test_events_of_a_route_are_rows_once_when_the_format_is_corrected(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json")
    file = landing.file.read_text().replace("path: rows", "route: 'rows/{kind}'")
    file += "dead_letters: {path: shop_dead_letters}\n"
    landing.file.write_text(file)
    landing.put("a.csv", "id,kind\n1,a\n3,b\n5,a\n", 1000)
    landing.run()
    refused = len(landing.letters())
    landing.file.write_text(file.replace("format: json", HEADER))

    landing.run()
    replay(Pipeline.from_file(landing.file), DeadLetterFilter(), who="me")

    rows = {name: DeltaTable(tmp_path / "rows" / name).to_pyarrow_table()["id"].to_pylist() for name in "ab"}
    assert (refused, rows) == (4, {"a": ["1", "5"], "b": ["3"]})
    assert landing.letters() == []
    assert landing.is_sound


def test_event_is_a_row_once_after_a_kill_between_dead_letters_and_rows_and_another_header(
    tmp_path: Path,
) -> None:
    landing = Landing(tmp_path, LINES, IDS)
    landing.put("b.csv", "id\n1\nnone\n3\n", 2000)
    code = run_and_kill(landing.file, "letters_committed")
    waiting = [letter["payload"] for letter in landing.letters()]
    landing.set(HEADER, IDS)

    landing.run()

    assert (code, waiting) == (-signal.SIGKILL, [b"id", b"none"])
    assert replayed(landing) == [1, 3]
    assert [letter["payload"] for letter in landing.letters()] == [b"id\nnone"]
    assert landing.is_sound


def back_to(landing: Landing, version: int) -> None:
    rewind(Pipeline.from_file(landing.file), "rows", to_version=version, who="me")


def test_event_is_a_row_once_after_a_rewind_and_another_header(tmp_path: Path) -> None:
    landing = Landing(tmp_path, LINES, IDS)
    landing.put("a.csv", "2\n", 1000)
    landing.run()
    landing.put("b.csv", "id\n1\nnone\n3\n", 2000)
    landing.run()
    before = landing.rows("id"), len(landing.letters())
    back_to(landing, 1)
    landing.set(HEADER, IDS)

    landing.run()
    landing.run()

    assert before == ([1, 2, 3], 2)
    assert replayed(landing) == [1, 2, 3]
    assert [letter["payload"] for letter in landing.letters()] == [b"id\nnone"]
    assert [one["rows"] for one in landing.ledger()] == [1, 3]
    assert landing.is_sound


def test_event_is_a_row_once_after_a_rewind_to_before_another_format(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json", IDS)
    landing.put("a.csv", '{"id": 0}\n', 1000)
    landing.run()
    landing.put("b.csv", "1\n3\n5\n", 2000)
    landing.run()
    landing.set(LINES, IDS)
    landing.put("c.csv", "7\nnone\n9\n", 3000)
    landing.run()
    before = landing.rows("id"), len(landing.letters())
    back_to(landing, 1)

    landing.run()

    assert before == ([0, 7, 9], 4)
    assert landing.rows("id") == [0, 1, 3, 5, 7, 9]
    assert replayed(landing) == [0, 1, 3, 5, 7, 9]
    assert [letter["payload"] for letter in landing.letters()] == [b"none"]
    assert landing.is_sound


@pytest.mark.parametrize("how", ["after: delete", "removed"])
def test_dead_letters_of_files_that_are_gone_stay_when_the_table_is_dropped(tmp_path: Path, how: str) -> None:
    landing = Landing(tmp_path, "format: json" + (", after: delete" if how != "removed" else ""), IDS)
    gone = landing.put("a.json", '{"id": 1}\nnone\n', 1000)
    landing.run()
    if how == "removed":
        gone.unlink()
    landing.put("b.json", '{"id": 2}\nnothing\n', 2000)
    landing.run()
    shutil.rmtree(landing.folder / "rows")
    if how == "removed":
        landing.put("b.json", '{"id": 2}\nnothing\n', 2000)

    landing.run()

    assert landing.rows("id") == ([2] if how == "removed" else [])
    assert [letter["payload"] for letter in landing.letters() if letter["payload"]] == [b"none", b"nothing"]


def test_thousands_of_dead_letters_that_go_and_stay_in_turn_are_removed_in_one_commit(tmp_path: Path) -> None:
    """A condition in SQL about so many ranges of offsets crashes the process in delta-rs."""
    landing, count = Landing(tmp_path, "format: json"), 20_000
    landing.put("a.json", "refused\n" * count, 1000)
    landing.run()
    tables = Tables(Pipeline.from_file(landing.file))
    tables.open_dead_letters()
    stay = {letter["offset"] for letter in landing.letters()[::2]}
    owner = Owner("rows", 7, {PARTITION: 0}, True, {}, stay.intersection, "all")

    removed = remove_outdated(tables, "drops", "rows", {PARTITION: file_start(2)}, [owner])

    history = DeltaTable(landing.folder / "shop_dead_letters").history()
    info = json.loads(history[0]["lakefeed"])
    assert removed.removed == count // 2
    assert (info["kind"], info["dead_letters"], len(history)) == ("outdated", count // 2, 3)
    assert {letter["offset"] for letter in landing.letters()} == stay
