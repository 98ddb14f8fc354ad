"""Tables whose files were written again are read by others, and by Spark, as we read them."""

from __future__ import annotations

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


def test_every_engine_reads_the_same_rows(tmp_path: Path) -> None:
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
    with DeltaSpark() as spark:
        sparks = spark.read(table.path).select(["id", "at", "day", "place"]).to_pylist()

    assert len(ours) == 296
    for rows in (duck, polar, [tuple(row.values()) for row in sparks]):
        assert sorted(rows, key=repr) == sorted(ours, key=repr)
