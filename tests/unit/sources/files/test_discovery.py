"""Which files count, what a changed file means, where a table begins, and what the ledger keeps."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lakefeed import Pipeline
from lakefeed.errors import LakefeedError, SourceUnavailable
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reprocess.files import retry_or_forget
from lakefeed.sources.files import piece, waiting
from lakefeed.sources.files.finding import listing
from lakefeed.sources.files.piece import FoundFile
from lakefeed.sources.files.reading.opening import FileOpener
from lakefeed.sources.files.scope import Scope
from support.landing import Landing


def line(number: int) -> str:
    return f'{{"id": {number}}}\n'


@pytest.mark.parametrize(
    ("path", "taken", "left_out"),
    [
        (
            "/in",
            ["a.json", "x/b.json", "_day=1/c.json"],
            ["_SUCCESS", ".a", "a.tmp", "a.crc", "_x/a", ".x/a"],
        ),
        ("/in/*.json", ["a.json"], ["b/a.json", "a.csv"]),
        ("/in/2026-*/x?.json", ["2026-1/xa.json"], ["2026-1/xab.json", "2026/xa.json", "2026-1/q/xa.json"]),
        ("/in/**/[!a]*.json", ["b.json", "q/w/b.json"], ["a.json", "q/a.json"]),
        ("/in/2026-*", ["2026-1/a.json", "2026-1/b/a.json"], ["2027/a.json"]),
        ("/in/**", ["a", "b/c"], []),
    ],
)
def test_path_means_a_folder_or_what_a_glob_matches(path: str, taken: list[str], left_out: list[str]) -> None:
    scope = Scope.of(path)

    assert scope.base == "/in"
    assert [name for name in taken if not scope.takes(name)] == []
    assert [name for name in left_out if scope.takes(name)] == []


def test_pattern_and_recursive_choose_by_name_and_depth() -> None:
    assert not Scope.of("/in", "*.json").takes("a.csv")
    assert Scope.of("/in", "*.json").takes("x/a.json")
    assert not Scope.of("/in", recursive=False).takes("x/a.json")


def test_files_of_one_time_and_descending_names_are_each_read_once(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, max_files: 2")
    for number in range(5):
        landing.put(f"{9 - number}.json", line(number), 1000)
    landing.run()
    landing.put("0.json", line(5), 1000)
    landing.put("old.json", line(6), 1)

    landing.run()
    landing.run()

    assert landing.rows("id") == [0, 1, 2, 3, 4, 5, 6]
    assert landing.is_sound


@pytest.mark.parametrize("count", [4, 5, 6])
def test_no_file_is_left_out_where_one_part_of_a_listing_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(listing, "_AT_A_TIME", 2)
    landing = Landing(tmp_path, "format: json")
    for number in range(count):
        landing.put(f"{number}.json", line(number), 1000)

    landing.run()

    assert landing.rows("id") == list(range(count))


def test_hidden_empty_and_unsettled_files_and_delta_tables_do_not_count(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, recursive: true")
    landing.put("a.json", line(1))
    for name in (
        "_SUCCESS",
        ".hidden.json",
        "b.json.tmp",
        "b.crc",
        "table/_delta_log/0.json",
        "table/c.json",
    ):
        landing.put(name, line(2))
    landing.put("empty.json", "")
    landing.put("future.json", line(3), time.time() + 3600)

    landing.run()

    assert landing.rows("id") == [1]


@pytest.mark.parametrize("start", ["new", "2001-01-01T00:00:00Z"])
def test_start_leaves_out_files_that_were_there_before(tmp_path: Path, start: str) -> None:
    landing = Landing(tmp_path, f"format: json, start: {start}", "schema: {id: long}")
    landing.put("a.json", line(1), 1000)
    landing.run()
    landing.put("b.json", line(2))

    landing.run()

    assert landing.rows("id") == [2]


def test_table_that_is_added_later_begins_by_itself(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("a.json", line(1))
    landing.run()
    text = landing.file.read_text()
    one = "rows: {path: rows, from: drops"
    landing.file.write_text(text.replace(one, f"also: {{path: also, from: drops}}, {one}"))
    # The ledger stays where it was, though another table is the first one now: both are in one folder.
    landing.put("b.json", line(2))

    landing.run()

    assert landing.rows("id") == [1, 2]


def test_changed_file_stops_the_source_and_is_named(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("a.json", line(1), 1000)
    landing.run()
    landing.put("a.json", line(2) * 2, 2000)

    with pytest.raises(LakefeedError, match=r"a\.json has changed since it was found: it had 10 bytes"):
        landing.run()

    assert landing.rows("id") == [1]


def test_changed_file_is_ignored_or_read_again(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, on_change: ignore")
    landing.put("a.json", line(1), 1000)
    landing.run()
    landing.put("a.json", line(2), 2000)
    landing.run()
    ignored = landing.rows("id")
    landing.set("format: json, on_change: reload")

    landing.run()
    landing.run()

    assert ignored == [1]
    assert landing.rows("id") == [2]
    assert landing.states() == {"1 a.json": "replaced", "2 a.json": "read"}
    assert landing.is_sound


@pytest.mark.parametrize("on_change", ["reload", "ignore"])
def test_file_that_changes_while_it_is_read_is_not_committed_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_change: str
) -> None:
    landing = Landing(tmp_path, f"format: json, on_change: {on_change}")
    file = landing.put("a.json", line(1) * 3, 1000)
    from lakefeed.sources.files.reading import read

    records = read.records

    def appended(*given: object) -> object:
        yield from records(*given)  # type: ignore[arg-type]
        if file.stat().st_mtime < 1500:
            landing.put("a.json", line(2) * 2, 2000)

    monkeypatch.setattr(read, "records", appended)

    landing.run()
    landing.run()

    assert landing.rows("id") == [2, 2]
    assert landing.states() == {"1 a.json": "replaced", "2 a.json": "read"}


def test_vanished_file_is_a_dead_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = Landing(tmp_path)
    gone = landing.put("a.json", line(1), 1000)
    landing.put("b.json", line(2), 2000)
    from lakefeed.sources.files.client import FilesClient

    splits = FilesClient.splits

    def removed(self: FilesClient, *given: object) -> object:
        gone.unlink(missing_ok=True)
        return splits(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(FilesClient, "splits", removed)

    landing.run()

    assert landing.rows("id") == [2]
    assert [one["code"] for one in landing.letters()] == ["file_gone"]
    assert landing.states() == {"1 a.json": "unreadable", "2 b.json": "read"}


@pytest.mark.parametrize("reads_before", [2, 5])
def test_file_removed_while_several_tasks_read_it_is_one_dead_letter_and_no_row(
    reads_before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(tmp_path)
    gone = landing.put("a.json", "".join(map(line, range(1000))), 1000)
    landing.put("b.json", line(2), 2000)
    for name, size in ((piece, "_SMALLEST_CUT"), (waiting, "_WORTH_A_TASK"), (waiting, "_MOST_OF_A_TASK")):
        monkeypatch.setattr(name, size, 1000 if name is piece else 3000)
    check, checks = FileOpener.check, []

    def removed(self: FileOpener, file: FoundFile) -> None:
        checks.append(file.path)
        if len(checks) == reads_before:
            gone.unlink()
        check(self, file)

    monkeypatch.setattr(FileOpener, "check", removed)

    with suppress(SourceUnavailable):
        landing.run()
    landing.run()

    assert checks.count(str(gone)) > 1
    assert landing.rows("id") == [2]
    assert [one["code"] for one in landing.letters()] == ["file_gone"]
    assert landing.states() == {"1 a.json": "unreadable", "2 b.json": "read"}


def test_ledger_that_is_gone_or_another_one_is_noticed(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("a.json", line(1))
    landing.run()
    shutil.rmtree(tmp_path / "shop_drops_files")

    with pytest.raises(LakefeedError, match="is another one than before"):
        landing.run()

    assert landing.rows("id") == [1]


def test_missing_folder_is_told_with_what_to_do(tmp_path: Path) -> None:
    landing = Landing(tmp_path, path="nowhere")

    with pytest.raises(LakefeedError, match=r"nowhere does not exist\.\nCreate it, or correct `path`"):
        landing.run()


def test_those_who_only_look_write_nothing(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("a.json", line(1) * 5)
    landing.put("b.json", line(1))
    pipeline = Pipeline.from_file(landing.file)

    planned = plan_run(pipeline)
    told = status(pipeline)

    assert planned.tables[0].lag == 2 and planned.tables[0].columns == ["id long"]
    assert told.tables[0].lag == 2 and told.tables[0].offsets["drops"]["0"].next_place == "file 1"
    assert not (tmp_path / "shop_drops_files").exists()


def test_retry_reads_a_file_again_and_forget_reads_what_lies_there_now(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("a.json", line(1), 1000)
    landing.put("b.json", line(2), 1000)
    landing.run()
    pipeline = Pipeline.from_file(landing.file)

    retry_or_forget(pipeline, None, ["a.json"], forget=False, who="me")
    landing.run()
    landing.put("b.json", line(3), 2000)
    retry_or_forget(pipeline, None, ["*/b.json"], forget=True, who="me")
    landing.run()

    assert landing.rows("id") == [1, 1, 2, 3]
    assert landing.is_sound
    assert landing.states() == {
        "1 a.json": "read",
        "2 b.json": "forgotten",
        "3 a.json": "read",
        "4 b.json": "read",
    }


def test_metadata_tells_file_place_time_name_and_size(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table="schema: {id: long}, metadata: true")
    file = landing.put("a.json", line(1) + line(2), 1000)

    landing.run()

    _, second = landing.rows("id", "_topic", "_offset", "_timestamp", "_headers")
    assert (second["_topic"], second["_offset"]) == (str(file), 10)
    assert second["_timestamp"].timestamp() == 1000
    assert second["_headers"] == [{"key": "file", "value": b"a.json"}, {"key": "size", "value": b"20"}]


def test_large_file_is_read_by_several_tasks_and_each_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakefeed.sources.files import piece, waiting

    monkeypatch.setattr(piece, "_SMALLEST_CUT", 100)
    monkeypatch.setattr(piece, "_OPENING", 0)
    monkeypatch.setattr(waiting, "_MOST_OF_A_TASK", 1000)
    landing = Landing(tmp_path)
    landing.put("a.json", "".join(line(number) for number in range(2000)), 1000)
    landing.put("b.json", f"[{','.join(line(number) for number in range(2000, 3000))}]", 2000)

    landing.run()

    assert sorted(landing.rows("id")) == list(range(3000))
    assert [one["rows"] for one in landing.ledger()] == [2000, 1000]
    assert landing.is_sound


def test_time_alone_is_a_change_on_a_disk(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, on_change: reload")
    file = landing.put("a.json", line(1), 1000)
    landing.run()
    os.utime(file, (2000, 2000))

    landing.run()

    assert landing.rows("id") == [1]
    assert landing.states() == {"1 a.json": "replaced", "2 a.json": "read"}


def test_name_that_is_not_utf_8_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    landing = Landing(tmp_path)
    landing.put("café.json", line(1), 1000)
    Path(os.fsdecode(os.fsencode(landing.into) + b"/caf\xe9.json")).write_text(line(2))

    landing.run()

    assert landing.rows("id") == [1]
    told = [one.getMessage() for one in caplog.records if "not UTF-8" in one.getMessage()]
    assert len(told) == 1
    assert r"caf\udce9.json is left out" in told[0]


def test_folder_that_is_removed_while_folders_are_listed_has_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(tmp_path)
    landing.put("kept.json", line(1), 1000)
    gone = landing.put("day=1/gone.json", line(2), 1000).parent
    scandir = os.scandir

    def removing(folder: Any) -> Any:
        if folder == str(gone):
            shutil.rmtree(gone)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", removing)

    (files,) = listing.Listing(Scope.of(str(landing.into)), {}).everything().in_order()

    assert files["path"].to_pylist() == [str(landing.into / "kept.json")]
