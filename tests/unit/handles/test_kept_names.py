"""`names: keep`: columns called as their fields, in tables with column mapping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, TableError, UsageError
from lakefeed.columns.mapping import HIGHEST_ID, MODE, PHYSICAL_NAME, physical_schema
from lakefeed.engine.inline import run_inline
from lakefeed.files.join import join_files
from lakefeed.files.names import Serial
from lakefeed.files.parquet import FileTarget, write_files
from lakefeed.handles.tables import Tables
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.reprocess.rebuild import rebuild
from lakefeed.reprocess.rewind import rewind
from lakefeed.stores import open_store
from lakefeed.tables.column_mapping import fields_of
from lakefeed.tables.data_files import data_files, read_file
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.operations import changes, checkpoint, repartition, restore
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.rewrite import compact
from lakefeed.testing.landed import read_rows
from lakefeed.upkeep.file_writer import file_writer
from support.delta_tables import open_any
from support.delta_tables import rows as duckdb_rows
from support.landing import Landing

INFO = operation_info("test", by="test")
ODD = {
    "US Gross": 1,
    "a,b;c": "x",
    "(=)": 1.5,
    "t\tn\n": True,
    "who {}": {"first name": "n", "l=": [{"é é": 1}]},
}


def lines(*events: dict[str, Any]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def landed(shop: Landing) -> list[dict[str, Any]]:
    return sorted(read_rows(str(shop.folder / "rows"))[1], key=repr)


def columns(shop: Landing) -> dict[str, dict[str, Any]]:
    """The metadata of every column and field, by its path."""
    schema = json.loads(DeltaTable(shop.folder / "rows").schema().to_json())
    return {path: field["metadata"] for path, field in fields_of(schema)}


def actions(shop: Landing, kind: str) -> list[dict[str, Any]]:
    log = shop.folder / "rows" / "_delta_log"
    found = [
        json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()
    ]
    return [one[kind] for one in found if kind in one]


def test_columns_are_called_as_their_fields_and_other_readers_see_that(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="names: keep")
    shop.put("1.json", lines(ODD, {"us gross": 2}))

    shop.run()

    assert landed(shop)[0] == ODD
    assert [row["US Gross"] for row in landed(shop)] == [1, 2]
    assert "('US Gross', 1)" in duckdb_rows(tmp_path / "rows")[0]
    assert shop.letters() == []
    assert verify(Pipeline.from_file(shop.file), deep=True).sound


def test_files_and_log_have_physical_names_and_ids(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="names: keep, partition_by: ['`a,b;c`']")
    shop.put("1.json", lines(ODD))

    shop.run()

    about = columns(shop)
    stored = {path: one[PHYSICAL_NAME] for path, one in about.items()}
    (added,) = actions(shop, "add")
    stats = json.loads(added["stats"])
    assert added["partitionValues"] == {stored["a,b;c"]: "x"}
    assert added["path"].startswith(f"{stored['a,b;c']}=x/")
    assert stats["minValues"][stored["US Gross"]] == 1
    assert stats["maxValues"][stored["who {}"]] == {stored["who {}.first name"]: "n"}
    assert {*stats["nullCount"]} == {stored[name] for name in ODD if name != "a,b;c"}
    file = pq.read_schema(tmp_path / "rows" / added["path"])
    assert file.names == [stored[name] for name in ODD if name != "a,b;c"]
    inner = file.field(stored["who {}"]).type.field(stored["who {}.l="])
    for field, path in ((file.field(stored["US Gross"]), "US Gross"), (inner, "who {}.l=")):
        assert field.metadata[b"PARQUET:field_id"] == str(about[path]["delta.columnMapping.id"]).encode()
    (protocol,), (metadata,) = actions(shop, "protocol"), actions(shop, "metaData")
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (3, 7)
    assert protocol["readerFeatures"] == ["columnMapping"]
    assert metadata["configuration"][MODE] == "name"
    assert int(metadata["configuration"][HIGHEST_ID]) == len(about) == 8


def test_new_columns_get_new_ids_and_the_others_keep_theirs(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="names: keep, evolve: {new_column: add, type_change: widen}")
    shop.put("1.json", lines(ODD))
    shop.run()
    before = columns(shop)

    shop.put("2.json", lines({"US Gross": 2.5, "new one": 1, "who {}": {"x y": 1, "l=": [{"z z": 2}]}}))
    shop.run()

    after = columns(shop)
    assert {path: after[path][PHYSICAL_NAME] for path in before} == {
        path: one[PHYSICAL_NAME] for path, one in before.items()
    }
    ids = [one["delta.columnMapping.id"] for one in after.values()]
    assert sorted(ids) == list(range(1, 12))
    assert DeltaTable(tmp_path / "rows").metadata().configuration[HIGHEST_ID] == "11"
    assert [row["US Gross"] for row in landed(shop)] == [1.0, 2.5]
    assert landed(shop)[1]["who {}"] == {"first name": None, "l=": [{"é é": None, "z z": 2}], "x y": 1}
    assert shop.letters() == []


@pytest.mark.parametrize("updates", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("partition_by", ["", ", partition_by: ['`Order ID`']"])
def test_changes_of_keys_find_their_rows(updates: str, partition_by: str, tmp_path: Path) -> None:
    table = f"names: keep, mode: upsert, updates: {updates}, keys: [Order ID], sequence_by: 'at, ms'"
    table += f"{partition_by}, delete_when: '`is gone`'"
    table += ", properties: {delta.enableChangeDataFeed: 'true'}"
    shop = Landing(tmp_path, table=table)
    for number in range(3):
        events = [{"Order ID": n, "at, ms": number, "is gone": n == number > 0, "v v": n} for n in range(4)]
        shop.put(f"{number}.json", lines(*events))
        shop.run()

    assert [(row["Order ID"], row["at, ms"]) for row in landed(shop)] == [(0, 2), (1, 2), (3, 2)]
    stored = columns(shop)["Order ID"][PHYSICAL_NAME]
    feed = actions(shop, "cdc")
    if partition_by:
        assert all([*one["partitionValues"]] == [stored] for one in feed)
    else:
        assert stored in pq.read_schema(tmp_path / "rows" / feed[0]["path"]).names
    assert verify(Pipeline.from_file(shop.file), deep=True).sound


def test_commands_keep_rows_and_mapping(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="names: keep, partition_by: ['`a,b;c`']")
    for number in range(3):
        shop.put(f"{number}.json", lines({**ODD, "US Gross": number}))
        shop.run()
    rows, mapping = landed(shop), columns(shop)
    path = tmp_path / "rows"

    table = open_any(path)
    compact.run(table, compact.plan(table), INFO, file_writer)
    assert len(data_files(open_any(path))) == 1
    assert landed(shop) == rows
    open_any(path).delta.create_checkpoint()
    assert landed(shop) == rows
    table = open_any(path)
    restore.run(table, restore.plan(table, 1), INFO)
    assert landed(shop) == rows[:1]
    assert columns(shop) == mapping
    with pytest.raises(
        TableError, match="uses columnMapping, which `table replace --partition-by` cannot keep"
    ):
        repartition.plan(open_any(path), ["US Gross"])


def test_rewind_before_a_column_came_gives_its_id_to_none_other(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="names: keep")
    shop.put("1.json", lines({"a a": 1}))
    shop.run()
    shop.put("2.json", lines({"a a": 2, "b b": 1}))
    shop.run()
    before = columns(shop)

    rewind(Pipeline.from_file(shop.file), "rows", to_version=1)
    shop.run()

    assert [row["a a"] for row in landed(shop)] == [1, 2]
    assert columns(shop)["a a"] == before["a a"]
    assert int(DeltaTable(tmp_path / "rows").metadata().configuration[HIGHEST_ID]) >= 2


def test_table_without_column_mapping_is_refused_with_the_way_out(tmp_path: Path) -> None:
    shop = Landing(tmp_path)
    shop.put("1.json", lines(ODD))
    shop.run()
    shop.set("format: json", "names: keep")

    with pytest.raises(TableError, match="has no column mapping, which `names: keep` needs") as refused:
        Tables(Pipeline.from_file(shop.file)).handles["rows"].open("shop")

    assert "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')" in str(refused.value)


def test_plan_shows_the_names_and_warns_of_partition_columns(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="names: keep, partition_by: ['`a,b;c`']")
    shop.put("1.json", lines(ODD))

    (table,) = plan_run(Pipeline.from_file(shop.file)).tables

    assert any(one.startswith("US Gross long") for one in table.columns)
    assert any("DuckDB reads NULL in these columns" in one for one in table.warnings)


CHAIN = """\
name: shop
sources: {drops: {type: files, path: in, settle: 1ms, format: json}}
tables:
  bronze: {path: bronze, from: drops, names: keep, evolve: add, partition_by: ["`a,b`"]}
  rows: {path: rows, from: bronze, names: keep, evolve: add, partition_by: ["`a,b`"], OPTIONS}
"""


@pytest.mark.parametrize("options", ["mode: append", "mode: overwrite", "mode: upsert, keys: [US Gross]"])
def test_table_fed_from_one_with_mapping_is_rebuilt_with_mapping(options: str, tmp_path: Path) -> None:
    shop = Landing(tmp_path)
    shop.file.write_text(CHAIN.replace("OPTIONS", options))
    events = [{"US Gross": at, "a,b": f"p {at % 2}", "who {}": {"x y": at}} for at in range(5)]
    shop.put("1.json", lines(*events))
    shop.run()
    assert landed(shop) == sorted(events, key=repr)
    highest = int(DeltaTable(tmp_path / "rows").metadata().configuration[HIGHEST_ID])

    shop.file.write_text(CHAIN.replace("OPTIONS", f"{options}, where: '`US Gross` > 1'"))
    if "overwrite" not in options:
        rebuild(Pipeline.from_file(shop.file), "rows", run_inline)

        assert landed(shop) == sorted(events[2:], key=repr)
        assert int(DeltaTable(tmp_path / "rows").metadata().configuration[HIGHEST_ID]) >= highest
        assert verify(Pipeline.from_file(shop.file), deep=True).sound
    shop.put("2.json", lines({"US Gross": 7, "a,b": "p 1", "more more": 1}))
    shop.run()
    assert landed(shop)[-1]["more more"] == 1


def test_rows_of_a_corrected_file_are_replaced(tmp_path: Path) -> None:
    table = "names: keep, partition_by: ['`a,b`'], metadata: true"
    shop = Landing(tmp_path, "format: json, on_change: reload", table)
    shop.put("1.json", lines({"US Gross": 1, "a,b": "x"}, {"US Gross": 2, "a,b": "y"}), at=1_700_000_000)
    shop.put("2.json", lines({"US Gross": 3, "a,b": "x"}), at=1_700_000_000)
    shop.run()

    shop.put("1.json", lines({"US Gross": 5, "a,b": "x"}), at=1_700_000_900)
    shop.run()

    assert [(row["US Gross"], row["a,b"]) for row in landed(shop)] == [(3, "x"), (5, "x")]
    assert verify(Pipeline.from_file(shop.file), deep=True).sound


def test_each_table_of_a_route_has_a_mapping_of_its_own(tmp_path: Path) -> None:
    shop = Landing(tmp_path)
    shop.file.write_text(
        "name: shop\nsources: {drops: {type: files, path: in, settle: 1ms, format: json}}\n"
        "tables: {rows: {route: 'rows/{my kind}', from: drops, names: keep, evolve: add}}\n"
    )
    shop.put("1.json", lines({"my kind": "a", "x x": 1}, {"my kind": "b", "y y": {"z z": 2}}))
    shop.run()
    shop.put("2.json", lines({"my kind": "a", "x x": 2, "new new": 1}))
    shop.run()

    rows = [read_rows(str(tmp_path / "rows" / kind))[1] for kind in "ab"]

    assert sorted(rows[0], key=repr) == [
        {"my kind": "a", "x x": 1, "new new": None},
        {"my kind": "a", "x x": 2, "new new": 1},
    ]
    assert rows[1] == [{"my kind": "b", "y y": {"z z": 2}}]


def test_files_are_joined_with_rows_and_names_of_all_their_columns(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="names: keep, partition_by: ['`a,b;c`']")
    shop.put("1.json", lines(ODD, {**ODD, "US Gross": 2}))
    shop.run()
    shape, store = open_any(tmp_path / "rows").shape, open_store(str(tmp_path / "rows"), {})
    target = FileTarget(shape.schema, shape.partition_columns, properties=shape.properties)
    batch = pa.RecordBatch.from_pylist(landed(shop), schema=shape.schema)
    parts = [write_files(store, target, [pa.Table.from_batches([batch])]) for _ in range(2)]

    (joined,) = join_files(store, target, [file for part in parts for file in part], Serial())

    assert joined.rows == 4
    assert {*pq.read_schema(tmp_path / "rows" / joined.path).names} < {*physical_schema(shape.schema).names}
    file = DataFile(joined.path, joined.path, joined.size, 4, tuple(joined.partition_values.items()))
    assert [row for rows in read_file(store, file, shape.schema) for row in rows.to_pylist()] == (
        batch.to_pylist() * 2
    )


def test_columns_with_statistics_are_chosen_by_their_names(tmp_path: Path) -> None:
    properties = "properties: {delta.dataSkippingStatsColumns: '`US Gross`,`who {}`.`first name`'}"
    shop = Landing(tmp_path, table=f"names: keep, {properties}")
    shop.put("1.json", lines(ODD))
    shop.run()

    (added,) = actions(shop, "add")

    stored = {path: one[PHYSICAL_NAME] for path, one in columns(shop).items()}
    assert json.loads(added["stats"])["nullCount"] == {
        stored["US Gross"]: 0,
        stored["who {}"]: {stored["who {}.first name"]: 0},
    }


def test_type_and_layout_change_by_a_rebuild_as_the_messages_say(tmp_path: Path) -> None:
    shop = Landing(tmp_path)
    before, _, options = CHAIN.rpartition(', partition_by: ["`a,b`"], OPTIONS')
    chain = f"{before}, OPTIONS{options}"
    declared = "schema: {US Gross: TYPE, 'a,b': string}"
    shop.file.write_text(chain.replace("OPTIONS", declared.replace("TYPE", "long")))
    shop.put("1.json", lines({"US Gross": 1, "a,b": "x"}, {"US Gross": 2, "a,b": "y"}))
    shop.run()

    wanted = f"{declared.replace('TYPE', 'double')}, partition_by: ['`a,b`']"
    shop.file.write_text(chain.replace("OPTIONS", wanted.partition(", partition")[0]))
    with pytest.raises(TableError, match=r"lakefeed rebuild .*shop.yaml --table rows --yes"):
        Tables(Pipeline.from_file(shop.file)).handles["rows"].open("shop")
    with pytest.raises(
        TableError, match="change `partition_by` or `schema` in its file, then `lakefeed rebuild`"
    ):
        repartition.plan(open_any(tmp_path / "rows"), ["a,b"])
    shop.file.write_text(chain.replace("OPTIONS", wanted))
    rebuild(Pipeline.from_file(shop.file), "rows", run_inline)

    assert landed(shop) == [{"US Gross": 1.0, "a,b": "x"}, {"US Gross": 2.0, "a,b": "y"}]
    assert DeltaTable(tmp_path / "rows").metadata().partition_columns == ["a,b"]
    shop.put("2.json", lines({"US Gross": 3, "a,b": "x"}))
    shop.run()
    assert [row["US Gross"] for row in landed(shop)] == [1.0, 2.0, 3.0]


def test_other_readers_are_as_the_page_says(tmp_path: Path) -> None:
    shop = Landing(tmp_path, table="names: keep, partition_by: ['`a,b;c`']")
    shop.put("1.json", lines(ODD))
    shop.run()

    with pytest.raises(Exception, match="columnMapping"):
        DeltaTable(tmp_path / "rows").to_pyarrow_table()
    with pytest.raises(Exception, match="columnMapping"):
        polars.read_delta(str(tmp_path / "rows"))
    (row,) = duckdb_rows(tmp_path / "rows")
    assert "('a,b;c', None)" in row and "('US Gross', 1)" in row


FOLLOWED = """\
name: shop
sources:
  drops: {type: files, path: in, settle: 1ms, format: json}
  followed: {type: delta, path: rows, change_feed: true}
tables:
  rows: {path: rows, from: drops, names: keep, partition_by: ['`a b`'], evolve: add, where: 'id > LEAST',
         properties: {delta.enableChangeDataFeed: 'true'}}
  silver: {path: silver, from: followed, names: keep, mode: upsert, keys: ['a b', id], evolve: add}
"""


def test_changes_from_before_a_rebuild_have_their_values_and_are_followed(tmp_path: Path) -> None:
    shop = Landing(tmp_path)
    events = [{"id": at, "a b": "xyz"[at], "who {}": {"first name": f"n{at}"}} for at in range(3)]
    shop.file.write_text(FOLLOWED.replace("LEAST", "-1"))
    shop.put("1.json", lines(*events))
    shop.run()
    shop.run()

    other = FOLLOWED.replace("LEAST", "0").replace("names: keep, part", "drop: [none], names: keep, part", 1)
    shop.file.write_text(other)
    rebuild(Pipeline.from_file(shop.file), "rows", run_inline)
    checkpoint.checkpoint_now(open_any(tmp_path / "rows"))
    # Others than the first columns get ids that these have had.
    shop.put("2.json", lines({"new new": 1, **events[1], "id": 7}))
    shop.run()

    (gone, *stayed) = events
    table = open_any(tmp_path / "rows")
    for first in range(1, table.version + 1):
        told = pa.Table.from_batches(changes.changes(table, first).batches).to_pylist()
        names = ["id", "a b", "who {}"]
        found = [
            (one["_commit_version"], one["_change_type"], {key: one[key] for key in names}) for one in told
        ]
        wanted = [
            *((1, "insert", one) for one in events),
            *((2, "delete", one) for one in events),
            *((2, "insert", one) for one in stayed),
            (4, "insert", {**events[1], "id": 7}),
        ]
        assert sorted(found, key=repr) == sorted((one for one in wanted if one[0] >= first), key=repr)
    assert sorted((row["id"], row["a b"]) for row in read_rows(str(tmp_path / "silver"))[1]) == [
        (1, "y"),
        (2, "z"),
        (7, "y"),
    ]
    assert shop.letters() == [] and gone["id"] == 0
    files = {one["path"]: one["partitionValues"] for one in actions(shop, "add")}
    assert all(files[one["path"]] == one["partitionValues"] for one in actions(shop, "remove"))
    for version in (0, 1):
        (tmp_path / "rows" / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(UsageError, match=r"takes rows away, and version 1, .*\nStart with a later version"):
        changes.changes(open_any(tmp_path / "rows"), 2)
    told = pa.Table.from_batches(changes.changes(open_any(tmp_path / "rows"), 3).batches).to_pylist()
    assert [one["id"] for one in told] == [7]
