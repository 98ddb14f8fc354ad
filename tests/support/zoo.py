"""Tables that Spark wrote, with the features of many protocols, kept as copies beside the tests.

Written once with `python -m support.zoo`, from the folder `tests`: Spark needs longer to write them than all
tests may take. What is here is how they were made.
"""

from __future__ import annotations

import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from support.delta_spark import DeltaSpark

ARCHIVE = Path(__file__).parents[1] / "interop" / "zoo.tar.xz"

COLUMNS = "id BIGINT, day STRING, v DOUBLE"
ROWS = "SELECT id + {start} AS id, concat('d', id % 2) AS day, id / 3 AS v"


@dataclass(frozen=True)
class Made:
    """How a table was made: created, twice ten rows inserted, then changed by the statements in `also`."""

    columns: str = COLUMNS
    layout: str = ""
    properties: str = ""
    rows: str = ROWS
    also: tuple[str, ...] = ()


ZOO = {
    "plain": Made(layout="PARTITIONED BY (day)"),
    "check": Made(also=("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)",)),
    "writer_4": Made(properties="'delta.minWriterVersion'='4'"),
    "writer_5": Made(properties="'delta.minReaderVersion'='2', 'delta.minWriterVersion'='5'"),
    "not_null": Made(columns="id BIGINT NOT NULL, day STRING NOT NULL, v DOUBLE"),
    "append_only": Made(properties="'delta.appendOnly'='true'"),
    "change_feed": Made(
        properties="'delta.enableChangeDataFeed'='true'", also=("UPDATE {t} SET v = 7 WHERE id = 6",)
    ),
    "generated": Made(columns=f"{COLUMNS}, tenfold BIGINT GENERATED ALWAYS AS (id * 10)"),
    "timestamp_ntz": Made(
        columns=f"{COLUMNS}, at TIMESTAMP_NTZ", rows=f"{ROWS}, TIMESTAMP_NTZ'2026-11-15 12:00:00' AS at"
    ),
    "vectors": Made(
        properties="'delta.enableDeletionVectors'='true'", also=("DELETE FROM {t} WHERE id = 5",)
    ),
    "v2_checkpoint": Made(properties="'delta.checkpointPolicy'='v2', 'delta.checkpointInterval'='2'"),
    "mapping": Made(
        properties="'delta.columnMapping.mode'='name'",
        also=("ALTER TABLE {t} RENAME COLUMN v TO w", "ALTER TABLE {t} RENAME COLUMN w TO v"),
    ),
    "clustered": Made(layout="CLUSTER BY (day)"),
    "row_tracking": Made(properties="'delta.enableRowTracking'='true'"),
    "identity": Made(columns=f"{COLUMNS}, n BIGINT GENERATED ALWAYS AS IDENTITY"),
    "defaults": Made(
        columns=f"{COLUMNS}, d STRING DEFAULT 'x'",
        properties="'delta.feature.allowColumnDefaults'='supported'",
    ),
    "in_commit_timestamp": Made(properties="'delta.enableInCommitTimestamps'='true'"),
    "widened": Made(
        columns="id INT, day STRING, v DOUBLE",
        properties="'delta.enableTypeWidening'='true'",
        rows="SELECT CAST(id + {start} AS INT) AS id, concat('d', id % 2) AS day, id / 3 AS v",
        also=("ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",),
    ),
    "letters_in_paths": Made(
        layout="PARTITIONED BY (day)",
        rows="SELECT id + {start} AS id, concat('ü', id % 2) AS day, id / 3 AS v",
    ),
    "signs_in_paths": Made(
        layout="PARTITIONED BY (day)",
        rows="SELECT id + {start} AS id, concat(' a/b:c=d%e?f&g#h+i', id % 2) AS day, id / 3 AS v",
    ),
    "evolved": Made(
        columns=f"{COLUMNS}, s STRUCT<a: INT, l: ARRAY<STRUCT<x: INT>>>",
        rows=f"{ROWS}, named_struct('a', 1, 'l', array(named_struct('x', 2))) AS s",
        also=(
            "ALTER TABLE {t} ADD COLUMNS (s.b STRING, s.l.element.y STRING, late DECIMAL(9, 2))",
            "INSERT INTO {t} VALUES (99, 'd0', 1.5, named_struct('a', 3, 'l', "
            "array(named_struct('x', 4, 'y', 'why')), 'b', 'bee'), 12.34)",
        ),
    ),
    "every_type": Made(
        columns=f"{COLUMNS}, i8 TINYINT, i16 SMALLINT, i32 INT, f FLOAT, flag BOOLEAN, b BINARY, "
        "c DECIMAL(38, 10), d DATE, at TIMESTAMP, l ARRAY<STRING>, m MAP<STRING, BIGINT>, nothing STRING",
        rows=f"{ROWS}, 1Y, 2S, 3, float('NaN'), true, X'00ff', 1.5BD, DATE'1500-01-01', "
        "TIMESTAMP'2026-11-15 12:00:00.123456', array('x', null), map('k', 1L), null",
    ),
    "int96": Made(
        columns=f"{COLUMNS}, at TIMESTAMP", rows=f"{ROWS}, TIMESTAMP'2026-11-15 12:00:00.123456' AS at"
    ),
}


def unpack(folder: Path) -> Path:
    """Copies of all tables, in a folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _write(folder: Path) -> None:
    with DeltaSpark() as spark:
        for name, made in ZOO.items():
            table = f"delta.`{folder / name}`"
            properties = f"TBLPROPERTIES ({made.properties})" if made.properties else ""
            kind = "INT96" if name == "int96" else "TIMESTAMP_MICROS"
            spark.sql(f"SET spark.sql.parquet.outputTimestampType={kind}")
            spark.sql(f"CREATE TABLE {table} ({made.columns}) USING delta {made.layout} {properties}")
            names = "(id, day, v)" if name in ("generated", "identity", "defaults") else ""
            for start in (0, 10):
                source = made.rows.format(start=start)
                spark.sql(f"INSERT INTO {table} {names} {source} FROM range(0, 10, 1, 1)")
            spark.sql(*(statement.format(t=table) for statement in made.also))
            print(name, flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="lakefeed-zoo-") as made_in:
        _write(Path(made_in))
        with tarfile.open(ARCHIVE, "w:xz") as packed:
            for path in sorted(Path(made_in).iterdir()):
                packed.add(path, path.name)
