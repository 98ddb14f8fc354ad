"""Tables whose files were written again are read by others, and by Spark, as we read them."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
from duckdb_extensions import import_extension

from lakefeed.tables.write.keyed import KeyRules
from support.delta_spark import DeltaSpark
from support.keyed_table import KeyedTable

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.int64()),
        ("day", pa.string()),
        ("place", pa.struct([("town", pa.string()), ("zips", pa.list_(pa.int32()))])),
    ]
)


def test_sparks_own_merge_makes_the_same_table(tmp_path: Path, delta_spark: DeltaSpark) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("name", pa.string())])
    table = KeyedTable(tmp_path / "ours", schema, KeyRules(("id",), ("at",)), max_rows=50)
    first = [{"id": key, "at": 10, "name": f"first {key}"} for key in range(200)]
    table.apply(*first)
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    changes = [
        {"id": key, "at": key % 20, "name": f"second {key}", "op": "delete" if key % 7 == 0 else "upsert"}
        for key in range(100, 300)
    ]
    table.apply(*changes)
    values = ", ".join(str((one["id"], one["at"], one["name"], one["op"])) for one in changes)
    merge = f"""
        MERGE INTO delta.`{tmp_path / "theirs"}` t
        USING (SELECT * FROM VALUES {values} AS s(id, at, name, op)) s ON t.id = s.id
        WHEN MATCHED AND s.at >= t.at AND s.op = 'delete' THEN DELETE
        WHEN MATCHED AND s.at >= t.at THEN UPDATE SET id = s.id, at = s.at, name = s.name
        WHEN NOT MATCHED AND s.op <> 'delete' THEN INSERT (id, at, name) VALUES (s.id, s.at, s.name)"""

    delta_spark.sql(merge)
    theirs = delta_spark.read(tmp_path / "theirs").to_pylist()

    assert sorted(theirs, key=lambda row: row["id"]) == sorted(table.rows(), key=lambda row: row["id"])


def test_every_engine_reads_the_same_rows(tmp_path: Path, delta_spark: DeltaSpark) -> None:
    table = KeyedTable(
        tmp_path / "rows", SCHEMA, KeyRules(("id",), ("at",)), partition_by=["day"], max_rows=100
    )
    for turn in range(4):
        table.apply(
            *(
                {
                    "id": key,
                    "at": turn,
                    "day": f"d{(key + turn) % 3}",
                    "place": None if key % 5 == 0 else {"town": f"t{key}", "zips": [key, turn]},
                }
                for key in range(0, 300, turn + 1)
            ),
            {"id": turn, "at": 9, "op": "delete"},
        )
    ours = [(row["id"], row["at"], row["day"], row["place"]) for row in table.rows()]

    import_extension("delta")
    with duckdb.connect() as connection:
        connection.execute("LOAD delta")
        duck = connection.execute(f"SELECT id, \"at\", day, place FROM delta_scan('{table.path}')").fetchall()
    polar = pl.read_delta(table.path).select("id", "at", "day", "place").rows()
    sparks = delta_spark.read(table.path).select(["id", "at", "day", "place"]).to_pylist()

    assert len(ours) == 296
    for rows in (duck, polar, [tuple(row.values()) for row in sparks]):
        assert sorted(rows, key=repr) == sorted(ours, key=repr)
