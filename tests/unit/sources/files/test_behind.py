"""Tables that are behind others, or added later: what they read of files that have changed or gone since."""

from __future__ import annotations

import gzip
import logging
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import DataLoss, Pipeline
from lakefeed.errors import LakefeedError
from lakefeed.events import Events, OffsetRange, Offsets
from lakefeed.reports.verify import verify
from lakefeed.reprocess.files import retry_or_forget
from lakefeed.reprocess.rewind import rewind
from lakefeed.sources.files.client import FilesClient
from lakefeed.sources.files.reading import read as reading
from lakefeed.sources.files.source import FilesSource
from support.landing import Landing


def line(*numbers: int) -> str:
    return "".join(f'{{"id": {number}}}\n' for number in numbers)


def with_second_table(landing: Landing) -> None:
    """Add a table to the pipeline; it begins with the first file."""
    text = landing.file.read_text()
    added = "}, later: {path: later, from: drops, evolve: add}}\nflush"
    landing.file.write_text(text.replace("}}\nflush", added))


def later(landing: Landing) -> list[int]:
    return sorted(DeltaTable(landing.folder / "later").to_pyarrow_table()["id"].to_pylist())


def test_files_before_the_start_are_skipped_and_stay(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, start: new, after: delete", table="schema: {id: long}")
    old = landing.put("old.json", line(1), 1000)
    landing.run()
    landing.put("new.json", line(2), 2000)

    landing.run()
    landing.run()

    assert landing.rows("id") == [2]
    assert landing.states() == {"1 old.json": "skipped", "2 new.json": "deleted"}
    assert old.exists()


def test_file_of_which_a_kill_lost_the_counts_is_not_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(tmp_path, "format: json, after: delete", table="schema: {id: long}")
    bad = landing.put("bad.json.gz", b"no gzip", 1000)
    with monkeypatch.context() as killed:
        killed.setattr(FilesClient, "_tell_ledger", lambda self: None)
        landing.run()
    landing.put("b.json", line(3), 2000)

    landing.run()
    landing.run()

    assert [letter["code"] for letter in landing.letters()] == ["bad_compression"]
    assert bad.exists()
    assert landing.rows("id") == [3]


def test_rewind_is_refused_where_files_were_taken_away(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, after: delete")
    landing.put("a.json", line(1), 1000)
    landing.run()
    landing.put("b.json", line(2), 2000)
    landing.run()

    with pytest.raises(DataLoss, match="`after` has deleted or moved 1 file of them"):
        rewind(
            Pipeline.from_file(landing.file), "rows", to_version=DeltaTable(tmp_path / "rows").version() - 1
        )

    assert landing.rows("id") == [1, 2]


def test_table_added_later_goes_without_files_that_were_taken_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    landing = Landing(tmp_path, "format: json, after: delete")
    landing.put("a.json", line(1), 1000)
    landing.run()
    with_second_table(landing)
    landing.put("b.json", line(2), 2000)

    with caplog.at_level(logging.WARNING, "lakefeed"):
        landing.run()

    assert (landing.rows("id"), later(landing)) == ([1, 2], [2])
    assert landing.letters() == []
    assert "1 file that `after` has deleted or moved cannot be read" in caplog.text
    told = verify(Pipeline.from_file(landing.file))
    assert told.sound
    assert told.tables[1].notes == [
        "drops/0: file 1 up to file 3: all 1 row that it could read; 1 row of drops had gone before the "
        "table was made"
    ]


def test_table_added_later_reads_the_newest_content_of_a_reloaded_file(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, on_change: reload")
    landing.put("a.json", line(1), 1000)
    landing.run()
    landing.put("a.json", line(1, 2), 2000)
    landing.run()
    with_second_table(landing)

    landing.run()

    assert (landing.rows("id"), later(landing)) == ([1, 2], [1, 2])
    assert landing.letters() == []
    assert landing.is_sound


def test_table_added_later_goes_without_what_a_forgotten_file_was(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("a.json", line(1, 2), 1000)
    landing.run()
    landing.put("a.json", line(3), 2000)
    retry_or_forget(Pipeline.from_file(landing.file), None, ["a.json"], forget=True, who="me")
    landing.run()
    with_second_table(landing)

    landing.run()

    assert (landing.rows("id"), later(landing)) == ([1, 2, 3], [3])
    assert landing.is_sound


@pytest.mark.parametrize("option", ["after: delete", "on_change: reload"])
def test_verify_forgives_only_what_had_gone_before_the_table_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    landing = Landing(tmp_path, f"format: json, {option}")
    landing.put("a.json", line(1), 1000)
    landing.run()
    landing.put("a.json", line(2, 3), 2000)
    landing.run()
    with_second_table(landing)
    landing.put("b.json", line(4), 3000)
    landing.run()
    pipeline = Pipeline.from_file(landing.file)
    counts = FilesClient.rows_read

    def one_more(self: FilesClient, position: Offsets, ends: Offsets) -> dict[str, int] | None:
        found = counts(self, position, ends)
        return found and {name: rows + 1 for name, rows in found.items()}

    sound = verify(pipeline)
    monkeypatch.setattr(FilesClient, "rows_read", one_more)
    lost = verify(pipeline)

    told = [" ".join(table.notes) for table in sound.tables]
    assert ["had gone" in notes for notes in told] == [False, True] and sound.sound
    assert [[finding.kind for finding in one.findings] for one in lost.tables] == [["count"], ["count"]]


def test_ignored_change_is_a_dead_letter_of_the_table_that_is_behind(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, on_change: ignore")
    landing.put("a.json", line(1, 2), 1000)
    landing.put("b.json", line(5), 1000)
    landing.run()
    landing.put("a.json", line(1, 2, 3), 2000)
    with_second_table(landing)

    landing.run()
    landing.run()

    assert (landing.rows("id"), later(landing)) == ([1, 2, 5], [5])
    assert [(letter["table"], letter["code"]) for letter in landing.letters()] == [("later", "file_changed")]


def test_verify_counts_no_refusal_of_a_table_behind_for_what_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(tmp_path, "format: json, on_change: ignore")
    landing.put("a.json", line(1, 2), 1000)
    with monkeypatch.context() as killed:
        killed.setattr(FilesClient, "_tell_ledger", lambda self: None)
        landing.run()
    landing.put("a.json", line(1, 2, 3), 2000)
    landing.put("b.json", line(4), 2000)
    with_second_table(landing)

    landing.run()

    proof = verify(Pipeline.from_file(landing.file))
    assert [str(finding) for table in proof.tables for finding in table.findings] == []


def test_verify_knows_a_file_that_was_forgotten_before_the_ledger_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(tmp_path)
    landing.put("a.json", line(1, 2), 1000)
    with monkeypatch.context() as killed:
        killed.setattr(FilesClient, "_tell_ledger", lambda self: None)
        landing.run()
    pipeline = Pipeline.from_file(landing.file)

    retry_or_forget(pipeline, None, ["a.json"], forget=True, who="me")

    proof = verify(pipeline)
    assert [str(finding) for table in proof.tables for finding in table.findings] == []


@pytest.mark.parametrize("change", ["ignore", "fail"])
def test_file_that_was_read_twice_and_deleted_is_new_when_its_name_comes_again(
    tmp_path: Path, change: str
) -> None:
    landing = Landing(tmp_path, f"format: json, on_change: {change}")
    landing.put("a.json", line(1), 1000)
    landing.run()
    retry_or_forget(Pipeline.from_file(landing.file), None, ["a.json"], forget=False, who="me")
    landing.set(f"format: json, on_change: {change}, after: delete")
    landing.run()
    landing.put("a.json", line(77), 2000)

    landing.run()

    assert landing.rows("id") == [1, 1, 77]


def test_folder_that_a_worker_cannot_see_makes_no_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(tmp_path)
    landing.file.write_text(landing.file.read_text() + "give_up_after: 1ms\n")
    landing.put("a.json", line(1), 1000)
    whole = reading.read

    def away(source: FilesSource, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        landing.into.rename(tmp_path / "away")
        try:
            yield from whole(source, ranges)
        finally:
            (tmp_path / "away").rename(landing.into)

    with monkeypatch.context() as unmounted:
        unmounted.setattr(reading, "read", away)
        with pytest.raises(LakefeedError, match="cannot be seen from here"):
            landing.run()
    landing.run()

    assert landing.rows("id") == [1]


def test_older_ledger_is_refused_and_not_tried_for_ever(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("a.json", line(1), 1000)
    landing.run()
    landing.put("b.json", line(2), 2000)
    landing.run()
    DeltaTable(tmp_path / "shop_drops_files").restore(2)
    shutil.rmtree(tmp_path / ".lakefeed", ignore_errors=True)

    with pytest.raises(LakefeedError, match="brought back to an older state"):
        landing.run()


def test_files_that_expand_more_than_expected_are_read_in_smaller_batches(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table="schema: {id: long}")
    landing.file.write_text(landing.file.read_text().replace("rows: 1000", "bytes: 100KB"))
    for number in range(4):
        landing.put(f"{number}.json.gz", gzip.compress(b'{"id":1}\n' * 26_000), 1000)

    landing.run()

    assert len(landing.rows("id")) == 4 * 26_000
