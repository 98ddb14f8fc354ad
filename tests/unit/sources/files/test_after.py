"""What becomes of files when every table has them: deleted or moved, exactly by the ledger."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from lakefeed import Pipeline, PipelineFileError
from lakefeed.sources.files import after as taking_away
from lakefeed.sources.files.after import After
from lakefeed.sources.files.piece import FoundFile
from lakefeed.sources.files.reading.opening import FileOpener
from support.landing import Landing


def names(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("after", ["delete", "{move: done}"])
def test_file_goes_when_it_was_read_and_one_of_its_name_is_read_as_new(tmp_path: Path, after: str) -> None:
    landing = Landing(tmp_path, f"format: json, after: {after}")
    landing.put("x/a.json", '{"id": 1}', 1000)
    landing.put("bad.json.gz", "no gzip", 1000)
    landing.run()
    left = names(landing.into)
    landing.put("x/a.json", '{"id": 22}', 1000)

    landing.run()

    assert landing.rows("id") == [1, 22]
    assert left == names(landing.into) == ["bad.json.gz"], "what could not be read stays"
    moved = ["x/a.json", "x/a.json.3"] if "move" in after else []
    assert names(tmp_path / "done") == moved
    state = "moved" if "move" in after else "deleted"
    assert landing.states() == {"1 bad.json.gz": "unreadable", "2 a.json": state, "3 a.json": state}
    assert landing.is_sound


def test_file_that_a_killed_run_has_moved_is_only_noted(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    file = landing.put("a.json", '{"id": 1}')
    landing.run()
    file.unlink()
    landing.set("format: json, after: delete")

    landing.run()

    assert landing.states() == {"1 a.json": "deleted"}
    assert landing.rows("id") == [1]


def test_delay_and_a_changed_file_keep_it(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, after: delete, after_delay: 1h")
    landing.put("a.json", '{"id": 1}', 1000)
    landing.run()
    kept = names(landing.into)
    landing.set("format: json, after: delete, on_change: ignore")
    landing.put("a.json", '{"id": 2}', 2000)

    landing.run()

    assert kept == names(landing.into) == ["a.json"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("after: {move: in/done}", "after.move lies inside `path`"),
        ("after_delay: 1h", "after_delay has an effect only with `after: delete` or `move`"),
    ],
)
def test_after_that_makes_no_sense_is_refused(tmp_path: Path, options: str, told: str) -> None:
    landing = Landing(tmp_path, f"format: json, {options}")

    with pytest.raises(PipelineFileError, match=told):
        Pipeline.from_file(landing.file)


def test_files_that_another_source_reads_are_not_taken_away(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  a: {type: files, path: in, format: json, after: delete}
  b: {type: files, path: in/b, format: json}
tables: {t: {path: t, from: [a, b]}}
"""
    )

    with pytest.raises(PipelineFileError, match="takes files away that source 'b' reads too"):
        Pipeline.from_file(file)


def test_moved_file_of_the_same_name_and_size_replaces_none_and_a_repeated_move_adds_none(
    tmp_path: Path,
) -> None:
    landing = Landing(tmp_path, "format: json, after: {move: done}")
    for number in (1, 2):
        landing.put("a.json", f'{{"id": {number}}}', 1000)
        landing.run()
    # As a run leaves it that was killed between the copy and the deletion.
    landing.put("b.json", '{"id": 3}', 1000)
    (tmp_path / "done" / "b.json").write_text('{"id": 3}')
    landing.run()

    kept = {name: (tmp_path / "done" / name).read_text() for name in names(tmp_path / "done")}
    assert kept == {"a.json": '{"id": 1}', "a.json.2": '{"id": 2}', "b.json": '{"id": 3}'}
    assert names(landing.into) == []


def test_file_that_is_overwritten_while_it_is_moved_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = Landing(tmp_path, "format: json, after: {move: done}, on_change: ignore")
    file = landing.put("a.json", '{"id": 1}', 1000)
    copy = After._copy

    def overwritten(self: After, given: FoundFile, inside: str) -> None:
        copy(self, given, inside)
        file.write_text('{"id": 22}')

    monkeypatch.setattr(After, "_copy", overwritten)
    landing.run()

    assert file.read_text() == '{"id": 22}'


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("newer", [False, True])
def test_file_that_is_replaced_between_the_last_look_and_its_deletion_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: bool, has_links: bool
) -> None:
    landing = Landing(tmp_path, "format: json, after: delete, on_change: reload")
    file = landing.put("a.json", '{"id": 1}', 1000)
    delete = After._delete_on_disk
    checked, link = FileOpener.check, os.link

    def replaced(self: After, given: FoundFile) -> None:
        landing.put("a.json", '{"id": 22}', 2000)
        delete(self, given)

    def followed(self: FileOpener, given: FoundFile) -> None:
        if newer and given.path.endswith(".read"):
            landing.put("a.json", '{"id": 333}', 3000)
        checked(self, given)

    def refused(old: Path, new: Path) -> None:
        if str(old).endswith(".read"):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        link(old, new)

    with monkeypatch.context() as meanwhile:
        if not has_links:
            meanwhile.setattr(os, "link", refused)
        meanwhile.setattr(After, "_delete_on_disk", replaced)
        meanwhile.setattr(FileOpener, "check", followed)
        landing.run()
    left = names(landing.into), file.read_text()
    landing.run()

    assert left == (["a.json"], '{"id": 333}' if newer else '{"id": 22}')
    assert landing.rows("id") == ([1, 333] if newer else [1, 22])
    assert names(landing.into) == []


@pytest.mark.parametrize(("content", "left"), [('{"id": 1}', []), ('{"id": 22}', ["a.json"])])
def test_hidden_file_of_a_killed_deletion_goes_or_comes_back(
    tmp_path: Path, content: str, left: list[str]
) -> None:
    landing = Landing(tmp_path)
    file = landing.put("a.json", '{"id": 1}', 1000)
    landing.run()
    file.unlink()
    landing.put(".a.json.1.read", content, 1000)
    landing.set("format: json, after: delete")

    landing.run()

    assert names(landing.into) == left
    assert landing.states() == {"1 a.json": "deleted"}


@pytest.mark.parametrize("by_a_killed_run", [False, True])
def test_copy_is_on_the_disk_before_the_original_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_a_killed_run: bool
) -> None:
    landing = Landing(tmp_path, f"format: json, after: {{move: {tmp_path / 'done'}}}")
    original = landing.put("day/a.json", '{"id": 1}\n', 1000)
    if by_a_killed_run:
        (tmp_path / "done" / "day").mkdir(parents=True)
        (tmp_path / "done" / "day" / "a.json").write_text('{"id": 1}\n')
    synced: list[tuple[str, bool]] = []

    def noted(paths: list[Path]) -> None:
        synced.extend((str(path.relative_to(tmp_path)), original.exists()) for path in paths)

    monkeypatch.setattr(taking_away, "sync", noted)
    landing.run()

    assert synced == [("done/day/a.json", True), ("done/day", True), ("done", True)]
    assert not original.exists()


def test_file_that_was_renamed_into_its_folder_needs_no_time_to_settle(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.file.write_text(landing.file.read_text().replace("settle: 1ms", "settle: 0s"))
    landing.put("a.json", '{"id": 1}\n', time.time() + 3600)

    landing.run()

    assert landing.rows("id") == [1]
    with pytest.raises(PipelineFileError, match="settle: expected a duration with its unit, got 0"):
        landing.file.write_text(landing.file.read_text().replace("settle: 0s", "settle: 0"))
        landing.run()
