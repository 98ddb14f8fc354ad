"""What is committed to a disk outlives a power cut: what is synced, and in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import BatchFailed
from lakefeed.files import WrittenFile
from lakefeed.stores import open_store
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from support.fed_table import entry_file, make_table

Steps = list[tuple[str, str]]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """What this process asks of the disk, in order, as it asks for it."""
    seen: Steps = []
    fsync, link, unlink = os.fsync, os.link, os.unlink

    def noting_fsync(handle: int) -> None:
        fsync(handle)
        seen.append(("sync", str(Path(f"/proc/self/fd/{handle}").readlink())))

    def noting_link(source: Path, target: Path) -> None:
        link(source, target)
        seen.append(("link", str(target)))

    def noting_unlink(path: Path, **more: int) -> None:
        unlink(path, **more)
        seen.append(("unlink", str(path)))

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "link", noting_link)
    monkeypatch.setattr(os, "unlink", noting_unlink)
    return seen


def position(number: int) -> Change:
    return Change([], {"shop/clicks/0": number}, {"shop/clicks/0": number - 1}, {})


def entry(path: Path, version: int) -> str:
    return str(entry_file(path, version))


def test_an_entry_is_on_the_disk_before_it_has_its_name_and_its_name_before_it_counts(
    tmp_path: Path, steps: Steps
) -> None:
    table = make_table(tmp_path / "t", durable=True)
    steps.clear()

    append(table, position(0), retries=0)

    kinds = [kind for kind, _ in steps]
    assert kinds == ["sync", "link", "sync", "unlink"]
    assert steps[0][1].endswith(".json.tmp")
    assert steps[1:3] == [("link", entry(tmp_path / "t", 1)), ("sync", str(tmp_path / "t" / "_delta_log"))]


def test_a_new_table_is_there_for_good_with_the_folder_that_it_lies_in(tmp_path: Path, steps: Steps) -> None:
    make_table(tmp_path / "t", durable=True)

    synced = [path for kind, path in steps if kind == "sync"]
    assert synced[:2] == [entry(tmp_path / "t", 0), str(tmp_path / "t" / "_delta_log")]
    assert set(synced[2:]) == {str(tmp_path / "t"), str(tmp_path)}


def test_entries_of_others_are_synced_before_one_stands_on_them(tmp_path: Path, steps: Steps) -> None:
    table = make_table(tmp_path / "t", durable=True)
    DeltaTable(tmp_path / "t").alter.add_columns([Field("more", "long")])
    steps.clear()

    append(table, position(0), retries=0)

    order = [step for step in steps if step[1].startswith(str(tmp_path / "t" / "_delta_log" / "0"))]
    assert order == [("sync", entry(tmp_path / "t", 1)), ("link", entry(tmp_path / "t", 2))]


def test_an_entry_of_lakefeed_that_was_left_to_the_disk_is_synced_before_one_stands_on_it(
    tmp_path: Path, steps: Steps
) -> None:
    table = make_table(tmp_path / "t", durable=True)
    path = str(tmp_path / "t")
    other = LakeTable.open("events", path, {}, open_store(path, {}))
    assert other is not None
    append(other, Change([], {"other/clicks/0": 0}, {"other/clicks/0": None}, {}), retries=0)
    steps.clear()

    append(table, position(0), retries=0)

    order = [step for step in steps if step[1].startswith(str(tmp_path / "t" / "_delta_log" / "0"))]
    assert order == [("sync", entry(tmp_path / "t", 1)), ("link", entry(tmp_path / "t", 2))]


def test_the_entry_that_a_process_begins_with_is_synced_once(tmp_path: Path, steps: Steps) -> None:
    make_table(tmp_path / "t")
    path = str(tmp_path / "t")
    table = LakeTable.open("events", path, {}, open_store(path, {}), durable=True)
    assert table is not None

    for number in range(2):
        append(table, position(number), retries=0)

    assert steps[0] == ("sync", entry(tmp_path / "t", 0))
    assert steps.count(steps[0]) == 1


def test_a_checkpoint_is_synced_when_it_takes_the_place_of_entries(tmp_path: Path, steps: Steps) -> None:
    table = make_table(tmp_path / "t", properties={"delta.checkpointInterval": "2"}, durable=True)
    steps.clear()

    append(table, position(0), retries=0)

    log = tmp_path / "t" / "_delta_log"
    synced = {path for kind, path in steps if kind == "sync"}
    assert {str(log / f"{1:020d}.checkpoint.parquet"), str(log / "_last_checkpoint")} <= synced
    assert steps[-1] == ("sync", str(log))


def test_a_checkpoint_of_a_table_that_has_moved_on_is_synced_too(tmp_path: Path, steps: Steps) -> None:
    table = make_table(tmp_path / "t", properties={"delta.checkpointInterval": "2"}, durable=True)
    Path(entry(tmp_path / "t", 2)).write_text('{"commitInfo": {"operation": "WRITE"}}')

    # The other entry is read together with the one that the checkpoint is due for.
    append(table, position(0), retries=0)

    log = tmp_path / "t" / "_delta_log"
    synced = {path for kind, path in steps if kind == "sync"}
    assert set(map(str, log.glob("*.checkpoint.parquet"))) <= synced


def shop(folder: Path, more: str = "") -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: generate, rows: 30}}
tables:
  events: {{path: lake/events, from: clicks, partition_by: [day(event_time)]}}
{more}
"""
    )
    return Pipeline.from_file(file)


def test_every_file_and_every_folder_that_leads_to_it_is_synced_before_the_commit(
    tmp_path: Path, steps: Steps
) -> None:
    run_inline(shop(tmp_path))

    table = tmp_path / "lake" / "events"
    files = [Path(uri) for uri in DeltaTable(table).file_uris()]
    assert files
    committed = steps.index(("link", entry(table, 1)))
    before = {path for kind, path in steps[:committed] if kind == "sync"}
    assert {str(path) for path in files} <= before
    assert {str(path.parent) for path in files} | {str(table)} <= before


def test_sync_false_leaves_all_of_it_to_the_disk(tmp_path: Path, steps: Steps) -> None:
    run_inline(shop(tmp_path, "sync: false"))

    assert DeltaTable(tmp_path / "lake" / "events").to_pyarrow_table().num_rows == 30
    assert [path for kind, path in steps if kind == "sync"] == []


@pytest.mark.parametrize("there", [None, b"", b"more than was written"])
def test_no_entry_names_a_file_that_is_not_there_as_it_was_written(
    tmp_path: Path, there: bytes | None
) -> None:
    table = make_table(tmp_path / "t", durable=True)
    if there is not None:
        (tmp_path / "t" / "a.parquet").write_bytes(there)
    file = WrittenFile("a.parquet", 7, {}, '{"numRecords":1}', 1)
    change = Change([file], {"shop/clicks/0": 0}, {"shop/clicks/0": -1}, {})

    with pytest.raises(
        BatchFailed, match=r"a.parquet was written with 7 bytes, and (none|0|21) are there"
    ) as told:
        append(table, change, retries=3)

    assert told.value.untried
    assert not Path(entry(tmp_path / "t", 1)).exists()
