"""Tables with column mapping, Lakefeed's and Spark's, written by both in turn and read by both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakefeed import Pipeline
from lakefeed.errors import TableError
from lakefeed.reports.verify import verify
from lakefeed.tables.operations import changes
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.rewrite import compact
from lakefeed.testing.landed import read_rows
from lakefeed.upkeep.file_writer import file_writer
from support.delta_spark import DeltaSpark
from support.delta_tables import open_any
from support.landing import Landing

KEYED = "keys: [Order ID], sequence_by: 'at, ms'"
MADE = {
    ("upsert", "name"): f"mode: upsert, {KEYED}",
    ("marked", "id"): f"mode: upsert, updates: merge_on_read, {KEYED}",
    ("history", "id"): f"mode: history, {KEYED}",
}
COLUMNS = (
    "`Order ID` BIGINT, `at, ms` BIGINT, `sub=type` STRING, `who {}` STRUCT<`first name`: STRING, "
    "`tags;` ARRAY<STRUCT<`t t`: BIGINT>>>, `by (day)` MAP<STRING, STRUCT<`n n`: DOUBLE>>"
)


def event(number: int, at: int, **more: Any) -> str:
    who = {"first name": f"n{number}", "tags;": [{"t t": at}]}
    own = {"Order ID": number, "at, ms": at, "sub=type": f"s {number % 2}", "who {}": who}
    return json.dumps({**own, **more}) + "\n"


def same(spark: DeltaSpark, path: Path) -> list[dict[str, Any]]:
    """The rows, which Spark and delta-rs read alike, in the order of their keys."""
    mine, theirs = read_rows(str(path))[1], spark.read(path).to_pylist()
    assert sorted(map(repr, map(sorted, (row.items() for row in theirs)))) == sorted(
        map(repr, map(sorted, (row.items() for row in mine)))
    )
    return sorted(mine, key=lambda row: (row["Order ID"], row["at, ms"]))


def same_changes(spark: DeltaSpark, path: Path) -> None:
    table = open_any(path)
    told = spark.answer(path, readChangeFeed="true", startingVersion="1")
    mine = pa.Table.from_batches(changes.changes(table, 1).batches)
    names = [name for name in mine.schema.names if name != "_commit_timestamp"]
    assert sorted(map(repr, mine.select(names).to_pylist())) == sorted(
        map(repr, told.select(names).to_pylist())
    )


@pytest.mark.parametrize(("mode", "mapping"), MADE)
def test_table_of_spark_is_fed_and_looked_after(
    mode: str, mapping: str, tmp_path: Path, delta_spark: DeltaSpark
) -> None:
    path = tmp_path / "rows"
    interval = ", valid_from BIGINT, valid_to BIGINT" if mode == "history" else ""
    delta_spark.sql(
        f"CREATE TABLE delta.`{path}` ({COLUMNS}{interval}) USING delta PARTITIONED BY (`sub=type`) "
        f"TBLPROPERTIES ('delta.columnMapping.mode'='{mapping}', 'delta.enableChangeDataFeed'='true', "
        f"'delta.enableDeletionVectors'='{str(mode == 'marked').lower()}')"
    )
    layout = "partition_by: ['sub=type'], create: false, evolve: add"
    shop = Landing(tmp_path, table=f"names: keep, {MADE[mode, mapping]}, {layout}")

    shop.put("1.json", "".join(event(number, number) for number in range(6)))
    shop.run()
    new = {"new one": "x", "by (day)": {"k": {"n n": 0.5}}, "who {}": {"nick name": "z"}}
    shop.put("2.json", "".join(event(number, 10 + number, **new) for number in (0, 2)))
    shop.run()
    shop.put("3.json", "".join(event(number, 5, **{"new one": "late"}) for number in (0, 3)))
    shop.run()

    assert shop.letters() == []
    rows = same(delta_spark, path)
    now = {row["Order ID"]: row["at, ms"] for row in rows if row.get("valid_to") is None}
    assert list(now.values()) == [10, 1, 12, 5, 4, 5]
    same_changes(delta_spark, path)
    table = open_any(path)
    compact.run(table, compact.plan(table), operation_info("test", by="test"), file_writer)
    assert same(delta_spark, path) == rows
    assert verify(Pipeline.from_file(shop.file), deep=True).sound


def test_own_table_is_one_that_spark_writes_too(tmp_path: Path, delta_spark: DeltaSpark) -> None:
    path = tmp_path / "rows"
    table = f"names: keep, mode: upsert, updates: merge_on_read, {KEYED}, partition_by: ['sub=type']"
    table += ", evolve: add, properties: {delta.enableChangeDataFeed: 'true'}"
    shop = Landing(tmp_path, table=table)
    shop.put("1.json", "".join(event(number, number, **{"a b": 1, "c c": 2}) for number in range(4)))
    shop.run()
    same(delta_spark, path)

    delta_spark.sql(
        f"UPDATE delta.`{path}` SET `at, ms` = 3 WHERE `Order ID` = 1",
        f"ALTER TABLE delta.`{path}` RENAME COLUMN `a b` TO `b a`",
        f"ALTER TABLE delta.`{path}` DROP COLUMN `c c`",
        f"ALTER TABLE delta.`{path}` RENAME COLUMN `who {{}}`.`first name` TO last",
    )
    shop.put("2.json", event(1, 2) + event(2, 9, **{"b a": 5, "c c": 7}) + event(3, 10, **{"a b": 8}))
    shop.run()

    rows = same(delta_spark, path)
    assert [row["at, ms"] for row in rows] == [0, 3, 9, 10]
    assert [row["b a"] for row in rows] == [1, 1, 5, None]
    assert [row["c c"] for row in rows] == [None, None, 7, None]
    assert [row["a b"] for row in rows] == [None, None, None, 8]
    assert [row["who {}"]["last"] for row in rows] == ["n0", "n1", None, None]
    assert shop.letters() == []
    delta_spark.sql(f"OPTIMIZE delta.`{path}`", f"INSERT INTO delta.`{path}` (`Order ID`) VALUES (9)")
    assert len(same(delta_spark, path)) == 5


def test_names_are_kept_in_a_table_that_gets_column_mapping_as_the_message_says(
    tmp_path: Path, delta_spark: DeltaSpark
) -> None:
    shop = Landing(tmp_path, table="evolve: add, partition_by: [kind]")
    shop.put("1.json", '{"id": 1, "kind": "a", "who": {"n": 1}}\n')
    shop.run()
    shop.set("format: json", "names: keep, evolve: add, partition_by: [kind]")
    with pytest.raises(TableError) as refused:
        shop.run()
    _, _, statement = str(refused.value).rpartition("turn it on with Spark: ")

    delta_spark.sql(statement)
    shop.put("2.json", '{"id": 2, "kind": "b c", "the name": "x", "who": {"n": 2, "last name": "y"}}\n')
    shop.run()

    rows = sorted(delta_spark.read(tmp_path / "rows").to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["kind"], row["the name"]) for row in rows] == [(1, "a", None), (2, "b c", "x")]
    assert [row["who"] for row in rows] == [{"n": 1, "last name": None}, {"n": 2, "last name": "y"}]
    assert sorted(read_rows(str(tmp_path / "rows"))[1], key=lambda row: row["id"]) == rows
    assert shop.is_sound and shop.letters() == []
