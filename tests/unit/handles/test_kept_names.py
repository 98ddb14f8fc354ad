"""`names: keep`: columns called as their fields, in tables with column mapping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, TableError
from lakefeed.columns.mapping import HIGHEST_ID, MODE, PHYSICAL_NAME
from lakefeed.handles.tables import Tables
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.reprocess.rewind import rewind
from lakefeed.tables.column_mapping import fields_of
from lakefeed.tables.data_files import data_files
from lakefeed.tables.operations import repartition, restore
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
