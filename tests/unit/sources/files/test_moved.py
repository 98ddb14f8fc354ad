"""A folder that is moved, mounted elsewhere, linked to or copied: no file of it is read twice unasked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline, SourceError
from lakefeed.errors import FileChanged
from lakefeed.reports.plan.plan import plan_run
from support.landing import Landing

TABLE = "schema: {id: long}, metadata: {_topic: _file}"


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """Two files that were read, in a project of its own."""
    (tmp_path / "project").mkdir()
    landing = Landing(tmp_path / "project", table=TABLE)
    landing.put("a.json", '{"id": 1}\n{"id": 2}\n', at=1000.25)
    landing.put("b/c.json", '{"id": 3}\n', at=2000.25)
    landing.run()
    return landing


def spelled(landing: Landing) -> list[str]:
    """The paths as the ledger has them."""
    table = DeltaTable(landing.folder / "shop_drops_files").to_pyarrow_table()
    return sorted(set(table["path"].to_pylist()))


def in_absolute_paths(landing: Landing) -> None:
    """Write the ledger as earlier versions did: with absolute paths."""
    ledger = landing.folder / "shop_drops_files"
    rows = DeltaTable(ledger).to_pyarrow_table()
    paths = pa.array([f"{landing.folder}/{path}" for path in rows["path"].to_pylist()])
    rows = rows.set_column(rows.schema.get_field_index("path"), "path", paths)
    write_deltalake(ledger, rows, mode="overwrite")


def plan(landing: Landing) -> list[str]:
    (table,) = plan_run(Pipeline.from_file(landing.file)).tables
    return [*table.gone, *([table.refused] if table.refused else [])]


def test_ledger_spells_a_relative_path_relative_to_the_pipeline_file(landing: Landing) -> None:
    assert spelled(landing) == ["in/a.json", "in/b/c.json"]
    assert [one["path"] for one in landing.ledger()] == [f"{landing.into}/a.json", f"{landing.into}/b/c.json"]


@pytest.mark.parametrize("path", ["../landing", "."])
def test_project_that_is_moved_reads_no_file_again(tmp_path: Path, path: str) -> None:
    for folder in ("one/project", "one/landing"):
        (tmp_path / folder).mkdir(parents=True)
    landing = Landing(tmp_path / "one" / "project", table=TABLE, path=path)
    landing.put("../../landing/a.json" if path == "../landing" else "../a.json", '{"id": 1}\n', at=1000.25)
    landing.set("format: json, pattern: '[ab].json'", TABLE, path)
    landing.run()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "landing").rename(tmp_path / "two" / "landing")
    there = landing.moved_to(tmp_path / "two" / "project")
    there.put("../../landing/b.json" if path == "../landing" else "../b.json", '{"id": 2}\n', at=2000.25)
    there.run()

    assert there.rows("id") == [1, 2]
    assert plan(there) == []


def test_project_that_is_copied_without_its_times_reads_no_file_again_unasked(
    landing: Landing, tmp_path: Path
) -> None:
    shutil.copytree(landing.folder, tmp_path / "copy", copy_function=shutil.copyfile)
    there = landing.moved_to(tmp_path / "old")
    there.folder = tmp_path / "copy"
    there.file, there.into = there.folder / "shop.yaml", there.folder / "in"

    with pytest.raises(FileChanged, match="and 1 file more, has changed since"):
        there.run()
    there.set("format: json, on_change: ignore", TABLE)
    there.run()

    assert there.rows("id") == [1, 2, 3]


def test_metadata_holds_the_path_of_the_time_of_reading(landing: Landing, tmp_path: Path) -> None:
    before = landing.into
    there = landing.moved_to(tmp_path / "elsewhere")
    there.put("new.json", '{"id": 4}\n', at=3000)
    there.run()

    assert there.rows("_file") == sorted(
        [f"{before}/a.json", f"{before}/a.json", f"{before}/b/c.json", f"{there.into}/new.json"]
    )
    assert there.is_sound


def test_ledger_with_absolute_paths_is_understood_where_it_was_and_after_a_move(
    landing: Landing, tmp_path: Path
) -> None:
    in_absolute_paths(landing)
    assert spelled(landing)[0].startswith("/")
    landing.run()
    assert landing.rows("id") == [1, 2, 3]

    there = landing.moved_to(tmp_path / "elsewhere")
    there.run()
    there.run()

    assert there.rows("id") == [1, 2, 3]
    assert spelled(there) == ["in/a.json", "in/b/c.json"]
    assert there.is_sound


def test_folder_at_another_mount_point_is_not_read_again(landing: Landing, tmp_path: Path) -> None:
    landing.into.rename(tmp_path / "mounted")
    landing.set("format: json", TABLE, str(tmp_path / "mounted"))
    landing.put("../../mounted/new.json", '{"id": 4}\n', at=3000)

    assert plan(landing) == []
    landing.run()

    assert landing.rows("id") == [1, 2, 3, 4]
    assert [one["path"] for one in landing.ledger()] == [
        f"{tmp_path}/mounted/{name}" for name in ("a.json", "b/c.json", "new.json")
    ]


def test_link_to_the_folder_is_the_same_folder(landing: Landing, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(landing.into)
    landing.set("format: json", TABLE, f"{tmp_path}/link/*")
    landing.run()

    assert landing.rows("id") == [1, 2, 3]


def test_table_that_is_added_after_a_move_reads_the_files_where_they_are(
    landing: Landing, tmp_path: Path
) -> None:
    landing.into.rename(tmp_path / "mounted")
    landing.set("format: json", TABLE, str(tmp_path / "mounted"))
    landing.run()
    landing.file.write_text(
        landing.file.read_text()
        .replace("tables: {", "tables: {late: {path: late, from: drops}, ")
        # The ledger stays where it was, and the first table names it.
        .replace("settle: 1ms", f"settle: 1ms, ledger: {landing.folder}/shop_drops_files")
    )
    landing.run()

    assert sorted(DeltaTable(landing.folder / "late").to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
    assert landing.letters() == []


def copied(landing: Landing, tmp_path: Path) -> None:
    """The files in another folder, with other times, and one that is new."""
    shutil.copytree(landing.into, tmp_path / "copy", copy_function=shutil.copyfile)
    for name in ("a.json", "b/c.json"):
        os.utime(tmp_path / "copy" / name, (5000, 5000))
    landing.set("format: json", TABLE, str(tmp_path / "copy"))
    landing.put("../../copy/new.json", '{"id": 4}\n', at=3000)


def asked(landing: Landing, tmp_path: Path) -> str:
    return (
        f"source drops: 2 files such as {tmp_path}/copy/a.json have the name and size of files that are "
        f"known under another path, such as {landing.into}/a.json: were they moved or copied here, their "
        "rows would be read a second time.\n"
        "Set `on_move: keep` on the source to take them for the files that were read.\n"
        "To read them again, set `on_move: read`, or start once with: "
        f"lakefeed run {landing.file} --yes"
    )


def test_copy_of_the_folder_is_not_read_until_somebody_says_what_it_is(
    landing: Landing, tmp_path: Path
) -> None:
    copied(landing, tmp_path)

    with pytest.raises(SourceError) as refused:
        landing.run()

    assert str(refused.value) == asked(landing, tmp_path)
    assert plan(landing) == [
        "drops: 2 known files are gone, 3 files are new",
        asked(landing, tmp_path),
    ]
    assert landing.rows("id") == [1, 2, 3]


def test_copy_that_is_kept_is_not_read_again(landing: Landing, tmp_path: Path) -> None:
    copied(landing, tmp_path)
    landing.set("format: json, on_move: keep", TABLE, str(tmp_path / "copy"))
    landing.run()
    landing.set("format: json", TABLE, str(tmp_path / "copy"))
    landing.run()

    assert landing.rows("id") == [1, 2, 3, 4]
    assert landing.is_sound


def test_copy_that_is_kept_is_read_where_the_file_that_was_read_is_there_and_differs(
    landing: Landing, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copied(landing, tmp_path)
    landing.put("../../copy/b/c.json", '{"id": 7}\n', at=5000)
    landing.set("format: json, on_move: keep", TABLE, str(tmp_path / "copy"))

    foreseen = plan(landing)
    with caplog.at_level("WARNING", "lakefeed"):
        landing.run()
    landing.run()

    assert foreseen == ["drops: 1 known file is gone, 2 files are new"]
    assert landing.rows("id") == [1, 2, 3, 4, 7]
    assert landing.is_sound
    assert (
        f"{tmp_path}/copy/b/c.json has the name and size of a file that is known as {landing.into}/b/c.json, "
        "but other content: read as new"
    ) in caplog.text


def test_copy_is_read_again_where_the_file_says_so(landing: Landing, tmp_path: Path) -> None:
    copied(landing, tmp_path)
    landing.set("format: json, on_move: read", TABLE, str(tmp_path / "copy"))
    landing.run()
    landing.set("format: json", TABLE, str(tmp_path / "copy"))
    landing.run()

    assert landing.rows("id") == [1, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize(
    ("folders", "time", "then"),
    [
        # Archives and file systems with whole seconds give files of other content one time.
        (["day1"], 315532800, "day1"),
        # Files of one burst have one time, and the path that is read now has no folder to tell them apart.
        (["day1", "day2"], 1000.25, ""),
    ],
)
def test_other_file_of_one_name_size_and_time_is_asked_about(
    tmp_path: Path, folders: list[str], time: float, then: str
) -> None:
    landing = Landing(tmp_path, table=TABLE, path=f"in/{then}")
    for number, folder in enumerate(folders):
        landing.put(f"{folder}/data.json", f'{{"id": {number}}}\n', at=time)
    landing.run()
    shutil.rmtree(landing.into)
    landing.put("next/data.json", '{"id": 7}\n', at=time)
    landing.set("format: json", TABLE, "in/next")

    with pytest.raises(SourceError, match="were they moved or copied here"):
        landing.run()
    landing.set("format: json, on_move: read", TABLE, "in/next")
    landing.run()

    assert landing.rows("id") == [*range(len(folders)), 7]


def test_file_of_another_size_is_another_file(landing: Landing, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    landing.set("format: json", TABLE, str(tmp_path / "other"))
    landing.put("../../other/a.json", '{"id": 14}\n', at=3000)

    assert plan(landing) == ["drops: 2 known files are gone, 1 file is new"]
    landing.run()

    assert landing.rows("id") == [1, 14, 2, 3]


def test_narrower_path_in_the_same_place_keeps_what_it_knows(landing: Landing) -> None:
    landing.set("format: json", TABLE, "in/b")
    landing.put("b/d.json", '{"id": 4}\n', at=3000)
    landing.run()
    landing.set("format: json", TABLE)
    landing.run()

    assert landing.rows("id") == [1, 2, 3, 4]
