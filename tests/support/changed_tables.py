"""Tables that Spark has changed in many ways, and what Spark's own readers bring of each version of them.

Written once with `python -m support.changed_tables`, from the folder `tests`: Spark needs longer for them
than all tests may take. What is here is how they were made. Beside a table, `<name>.answers` has Spark's
answers: `changes` by `readChangeFeed` from version 0 on, and `stream_<version>` by `readStream` from each
version on.
"""

from __future__ import annotations

import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from support.delta_spark import DeltaSpark

ARCHIVE = Path(__file__).parents[1] / "interop" / "changed_tables.tar.xz"

FEED = "'delta.enableChangeDataFeed'='true'"
CHANGES = (
    "INSERT INTO {t} SELECT id, concat('p', id % 2), id * 1.5 FROM range(0, 12, 1, 2)",
    "UPDATE {t} SET v = v + 100 WHERE id IN (2, 3)",
    "DELETE FROM {t} WHERE id = 5",
    "MERGE INTO {t} AS t USING (SELECT id + 8 AS id, 'p0' AS part, -1.0 AS v FROM range(6)) AS s "
    "ON t.id = s.id WHEN MATCHED AND s.id = 8 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
    "WHEN NOT MATCHED THEN INSERT *",
    "UPDATE {t} SET id = id + 1000 WHERE id = 1",
    "DELETE FROM {t} WHERE part = 'p1'",
    "OPTIMIZE {t}",
    "INSERT OVERWRITE {t} SELECT id + 50, 'p0', 0.5 FROM range(3)",
)


@dataclass(frozen=True)
class Changed:
    """How a table was made: created with these properties, then changed by statements."""

    properties: str = FEED
    layout: str = ""
    changes: tuple[str, ...] = CHANGES


TABLES = {
    "plain": Changed(),
    "partitioned": Changed(layout="PARTITIONED BY (part)"),
    "vectors": Changed(f"{FEED}, 'delta.enableDeletionVectors'='true'"),
    "vectors_partitioned": Changed(
        f"{FEED}, 'delta.enableDeletionVectors'='true'", layout="PARTITIONED BY (part)"
    ),
    "mapped_by_name": Changed(f"{FEED}, 'delta.columnMapping.mode'='name'", layout="PARTITIONED BY (part)"),
    "mapped_by_id": Changed(f"{FEED}, 'delta.columnMapping.mode'='id'"),
    "features": Changed(f"{FEED}, 'delta.minReaderVersion'='3', 'delta.minWriterVersion'='7'"),
    "in_commit_timestamps": Changed(f"{FEED}, 'delta.enableInCommitTimestamps'='true'"),
    "row_tracking": Changed(f"{FEED}, 'delta.enableRowTracking'='true'"),
    "restored": Changed(changes=(*CHANGES[:3], "RESTORE TABLE {t} TO VERSION AS OF 1", *CHANGES[3:5])),
    "grown": Changed(
        changes=(
            *CHANGES[:3],
            "ALTER TABLE {t} ADD COLUMNS (late STRING, s STRUCT<a: INT>)",
            "INSERT INTO {t} VALUES (77, 'p1', 7.5, 'late', named_struct('a', 7))",
            "UPDATE {t} SET late = 'later' WHERE id IN (4, 77)",
        )
    ),
    "no_feed": Changed(""),
    "no_feed_vectors": Changed("'delta.enableDeletionVectors'='true'"),
}


def unpack(folder: Path) -> Path:
    """Copies of all tables and answers, in a folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def answer(folder: Path, name: str, which: str) -> pa.Table:
    """What Spark has answered."""
    with pa.ipc.open_file(folder / f"{name}.answers" / f"{which}.arrow") as reader:
        return reader.read_all()


def _write(folder: Path) -> None:
    with DeltaSpark() as spark:
        for name, made in TABLES.items():
            table, answers = f"delta.`{folder / name}`", folder / f"{name}.answers"
            properties = f"TBLPROPERTIES ({made.properties})" if made.properties else ""
            columns = "id BIGINT, part STRING, v DOUBLE"
            spark.sql(f"CREATE TABLE {table} ({columns}) USING delta {made.layout} {properties}")
            spark.sql(*(statement.format(t=table) for statement in made.changes))
            answers.mkdir()
            if FEED in made.properties:
                found = spark.answer(folder / name, readChangeFeed="true", startingVersion="0")
                _keep(answers / "changes.arrow", found)
            versions = range(DeltaTable(folder / name).version() + 1) if name in STREAMED else ()
            for version in versions:
                given = {"stream": "yes", "startingVersion": str(version), "ignoreChanges": "true"}
                _keep(answers / f"stream_{version}.arrow", spark.answer(folder / name, **given))
            print(name, flush=True)


STREAMED = ("plain", "partitioned", "vectors", "mapped_by_name", "no_feed", "no_feed_vectors")


def _keep(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="lakefeed-changed-") as made_in:
        _write(Path(made_in))
        with tarfile.open(ARCHIVE, "w:xz") as packed:
            for path in sorted(Path(made_in).iterdir()):
                packed.add(path, path.name)
