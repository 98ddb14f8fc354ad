"""`verify` over all tables of a pipeline: what the dead letters must hold, and what only the data shows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.handles.tables import Tables
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.tables.log.entry import entry_name
from lakefeed.tables.log.log import Log
from lakefeed.tables.verify import duplicates
from support.offline import drain
from support.shop import Shop


class VerifiedShop(Shop):
    """A hundred events, ten of them cut off, from one or several sources into one table."""

    def fill(self, *, metadata: bool = True, sources: str = "clicks", rows: int = 100) -> None:
        table = f"metadata: {str(metadata).lower()}\nschema: {{event_id: long}}"
        generated = f"type: generate, rows: {rows}, bad_ratio: 0.1"
        self.save(generated, table, sources=sources.split(", "))
        self.drain(batch=40)

    def unchecked(self) -> list[str]:
        (table,) = verify(self.pipeline, deep=True).tables
        return table.unchecked


@pytest.fixture
def shop(tmp_path: Path) -> VerifiedShop:
    return VerifiedShop(tmp_path)


def test_tables_that_a_run_has_filled_are_sound(shop: VerifiedShop) -> None:
    shop.fill()

    proof = verify(shop.pipeline, deep=True)

    (table,) = proof.tables
    (partition,) = table.partitions
    assert proof.sound and proof.problems == []
    assert (table.rows, table.version, table.checked_from, table.unchecked) == (90, 4, 0, [])
    assert (partition.partition, partition.first, partition.next) == ("clicks/0", 0, 100)
    assert (partition.read, partition.dead_letters) == (100, 10)
    assert proof.dead_letters.rows == 10


def test_pipeline_that_has_never_run_is_sound(shop: VerifiedShop) -> None:
    shop.fill(rows=0)
    shutil.rmtree(shop.table)

    proof = verify(shop.pipeline, deep=True)

    assert proof.sound
    assert proof.tables[0].version is proof.dead_letters.version is None


def test_event_that_is_in_the_data_twice_is_found_by_its_position(shop: VerifiedShop) -> None:
    shop.fill()
    rows = DeltaTable(shop.table).to_pyarrow_table()
    write_deltalake(shop.table, rows.slice(0, 3), mode="append")

    shallow, deep = shop.findings(deep=False), shop.findings()

    assert [text.partition(":")[0] for text in shallow] == ["foreign"]
    offsets = sorted(rows.slice(0, 3).column("_offset").to_pylist())
    assert deep[1] == f"duplicate: version 5: clicks/0: 3 events there twice, the first at {offsets[0]}"


def test_same_offset_of_another_time_is_another_event(shop: VerifiedShop) -> None:
    shop.fill()
    rows = DeltaTable(shop.table).to_pyarrow_table().slice(0, 3)
    import pyarrow as pa
    import pyarrow.compute as pc

    later = pc.add(rows.column("_timestamp").cast(pa.int64()), pa.scalar(1_000_000))
    handle = rows.schema.get_field_index("_timestamp")
    anew = rows.set_column(handle, rows.schema.field(handle), later.cast(rows.schema.field(handle).type))

    write_deltalake(shop.table, anew, mode="append")

    assert [text.partition(":")[0] for text in shop.findings()] == ["foreign"]


def test_row_beyond_the_position_is_found_in_the_data(shop: VerifiedShop) -> None:
    shop.fill()
    rows = DeltaTable(shop.table).to_pyarrow_table()
    import pyarrow as pa

    handle = rows.schema.get_field_index("_offset")
    ahead = rows.slice(0, 1).set_column(handle, rows.schema.field(handle), pa.array([150]))
    write_deltalake(shop.table, ahead, mode="append")

    assert "reset: version 5: clicks/0: the table holds offset 150, its position is 100" in shop.findings()


def test_rows_without_metadata_columns_are_told_as_unchecked(shop: VerifiedShop) -> None:
    shop.fill(metadata=False)

    assert shop.findings() == []
    assert shop.unchecked() == [
        "90 rows without metadata columns: `metadata: true` would let repeated events be found in them"
    ]


def test_sources_that_cannot_be_told_apart_make_no_false_alarm(shop: VerifiedShop) -> None:
    shop.fill(sources="clicks, views")

    assert shop.findings() == []
    assert shop.unchecked() == ["partition 0 has no pipeline that is known to feed it"]


def test_file_whose_rows_are_not_what_the_log_says_is_found(shop: VerifiedShop) -> None:
    shop.fill()
    file = next(shop.table.glob("part-*.parquet"))
    rows = pq.read_table(file)
    pq.write_table(rows.slice(1), file)

    found = shop.findings()

    length = rows.num_rows
    assert any(f"{file.name} holds {length - 1} rows, the log says {length}" in text for text in found)
    assert any(text.startswith(f"file: version 4: {file.name} has ") for text in found)


def test_dead_letters_that_somebody_deleted_are_named(shop: VerifiedShop) -> None:
    shop.fill()
    shutil.rmtree(shop.letters)

    assert shop.findings() == [
        "dead_letters: version 4: clicks/0: the dead letters of offsets 80 to 99 are missing"
    ]


def test_dead_letters_that_are_there_twice_are_named(shop: VerifiedShop) -> None:
    shop.fill()
    letters = DeltaTable(shop.letters).to_pyarrow_table()
    write_deltalake(shop.letters, letters.slice(0, 2), mode="append")

    repeated = [text for text in shop.findings() if text.startswith("dead_letters:")]

    first = min(letters.slice(0, 2).column("offset").to_pylist())
    version = DeltaTable(shop.letters).version()
    assert repeated == [
        f"dead_letters: version {version}: 2 dead letters of table events there twice, "
        f"the first is clicks/0 at {first}"
    ]


def test_dead_letters_that_are_fewer_than_the_table_counts_are_named(shop: VerifiedShop) -> None:
    shop.fill()
    entry = shop.table / "_delta_log" / f"{2:020d}.json"
    told = entry.read_text()
    entry.write_text(told.replace("[0,40,40,4]", "[0,40,40,5]"))

    found = shop.findings()

    assert "[0,40,40,4]" in told
    assert found == [
        "count: version 2: 40 events read and 5 dead letters do not add up to 36 rows",
        "dead_letters: version 4: clicks/0: 11 dead letters by the table's commits, 10 in the dead letters",
    ]


def test_dead_letters_from_before_the_beginning_of_a_table_that_was_made_anew_are_no_finding(
    shop: VerifiedShop,
) -> None:
    shop.fill()
    shutil.rmtree(shop.table)
    handle = Tables(shop.pipeline).handles["events"]
    columns = handle.columns()
    assert columns is not None
    handle.create(columns, {"shop/clicks/0": 49}, {"pipeline": "shop", "source": "clicks", "kind": "create"})
    shop.fill(rows=120)

    assert DeltaTable(shop.letters).to_pyarrow_table().num_rows > 10
    assert shop.findings() == []


def test_log_that_cannot_be_read_is_a_finding_and_no_traceback(shop: VerifiedShop) -> None:
    shop.fill()
    shutil.rmtree(shop.table / "_delta_log")
    (shop.table / "_delta_log").write_text("a file")

    (finding,) = shop.findings()

    assert finding.startswith("log: ")


def test_a_log_that_is_cleaned_up_while_it_is_read_is_judged_by_what_is_left(
    shop: VerifiedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fill()
    DeltaTable(shop.table).create_checkpoint()
    newest = DeltaTable(shop.table).version()
    listed = Log.open

    def cleaned_after_listing(store: pafs.FileSystem) -> Log | None:
        log = listed(store)
        for version in range(newest):
            (shop.table / entry_name(version)).unlink(missing_ok=True)
        return log

    monkeypatch.setattr(Log, "open", cleaned_after_listing)

    assert shop.findings() == []
    assert any(f"the log begins with version {newest + 1}" in text for text in shop.unchecked())
    assert [one.error for one in status(shop.pipeline).tables] == [None]


def test_all_events_that_are_there_twice_are_counted_in_bounded_memory(
    shop: VerifiedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "_BLOCK_BITS", 6)
    monkeypatch.setattr(duplicates, "_MOST_AT_ONCE", 100)
    shop.fill(rows=3000)
    rows = DeltaTable(shop.table).to_pyarrow_table()
    write_deltalake(shop.table, rows, mode="append")
    version = DeltaTable(shop.table).version()
    write_deltalake(shop.table, rows.slice(0, 1), mode="append")

    found = [text for text in shop.findings() if text.startswith("duplicate:")]

    first = min(rows.column("_offset").to_pylist())
    assert len(rows) > 2500
    assert found == [
        f"duplicate: version {version + 1}: clicks/0: {len(rows):,} events there more than once, "
        f"the first at {first}"
    ]


class Shared:
    """A table that two pipelines have fed from the same events."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, name: str, *, share: bool, rows: int = 100) -> Path:
        file = self.folder / f"{name}.yaml"
        file.write_text(
            f"""\
name: {name}
sources: {{clicks: {{type: generate, rows: {rows}}}}}
tables:
  events:
    path: events
    from: clicks
    metadata: true
    share: {str(share).lower()}
    schema: {{event_id: long}}
"""
        )
        return file


def test_table_that_two_pipelines_feed_from_the_same_events_is_a_finding(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    drain(shared.file("shop", share=False))
    drain(shared.file("store", share=True, rows=150))

    proof = verify(Pipeline.from_file(shared.file("shop", share=False)))
    deep = verify(Pipeline.from_file(shared.file("shop", share=False)), deep=True)

    assert proof.tables[0].pipelines == ["shop", "store"]
    assert [str(one) for one in proof.tables[0].findings] == [
        "duplicate: version 4: pipelines shop and store both feed the table from the same events: "
        "100 events of partition 0 there twice, offsets 0 to 99.\n"
        "To take the second copy out, stop pipeline 'store' and this one, and type: lakefeed rewind "
        f"{tmp_path}/shop.yaml --table events --to-version 2 --yes\n"
        "If both are meant to feed the table, set `share: true` on it."
    ]
    assert [str(one) for one in deep.tables[0].findings][1:] == [
        "duplicate: version 4: clicks/0: 100 events there twice, the first at 0"
    ]


def test_table_that_is_shared_on_purpose_is_sound_with_a_note(tmp_path: Path) -> None:
    shared = Shared(tmp_path)
    drain(shared.file("shop", share=True))
    file = shared.file("store", share=True)
    drain(file)

    proof = verify(Pipeline.from_file(file), deep=True)

    assert proof.sound
    assert proof.tables[0].notes == [
        "pipelines shop and store both feed the table from the same events: 100 events of partition 0 there "
        "twice, offsets 0 to 99, as `share: true` allows"
    ]


def test_rows_that_cannot_be_counted_are_told_and_not_called_sound(shop: VerifiedShop) -> None:
    shop.fill()
    entry = shop.table / "_delta_log" / f"{2:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    entry.write_text("\n".join(map(json.dumps, actions)))

    proof = verify(shop.pipeline)

    (table,) = proof.tables
    assert (proof.sound, table.complete, table.findings, table.rows) == (False, False, [], None)
    assert table.unchecked == [
        "some files have no statistics, so rows could not be counted; the first such version is 2"
    ]
    assert proof.problems == [f"{table.name}: not checked: {table.unchecked[0]}"]
