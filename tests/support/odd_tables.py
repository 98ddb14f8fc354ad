"""Tables that few readers know: a shallow clone, variants, shredded ones and widened types, by Spark.

Written once with `python -m support.odd_tables`, from the folder `tests`: Spark needs longer for them than
all tests may take. What is here is how they were made. Beside `variants` lies `texts`, what Spark has made of
it with `to_json`, and beside `widened` the answer `widened.arrow`.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa

from support.delta_spark import DeltaSpark

ARCHIVE = Path(__file__).parents[1] / "interop" / "odd_tables.tar.xz"
_HERE = "/made/here"
"""What stands in the archive for the folder that the tables lie in: a clone names its files by it."""

_VARIANTS = r"""
SELECT id, parse_json(CASE id
  WHEN 0 THEN '{"a": 1, "b": [1, 2.5, null, "ü \\" "]}' WHEN 1 THEN 'null' WHEN 2 THEN '"text"'
  WHEN 3 THEN '12345678901234567890.5' WHEN 4 THEN '1e300' WHEN 5 THEN 'true' WHEN 6 THEN '{}' END) AS v,
  named_struct('inner', array(parse_json(CAST(id AS STRING)))) AS s FROM range(0, 8, 1, 1)"""
_WIDER = {
    "a": "BIGINT",
    "b": "DOUBLE",
    "c": "TIMESTAMP_NTZ",
    "d": "DECIMAL(12,4)",
    "e": "DECIMAL(12,1)",
    "f": "DOUBLE",
}

STATEMENTS = (
    "CREATE TABLE {origin} (id BIGINT, day STRING) USING delta PARTITIONED BY (day) "
    "TBLPROPERTIES ('delta.enableDeletionVectors'='true')",
    "INSERT INTO {origin} SELECT id, concat('ü %2', id % 2) FROM range(0, 10, 1, 1)",
    "DELETE FROM {origin} WHERE id = 5",
    "CREATE TABLE {clone} SHALLOW CLONE {origin}",
    "INSERT INTO {clone} SELECT id + 10, 'own' FROM range(0, 5, 1, 1)",
    "CREATE TABLE {variants} USING delta AS " + _VARIANTS.replace("{", "{{").replace("}", "}}"),
    "CREATE TABLE {texts} USING delta AS "
    "SELECT id, to_json(v) AS v, to_json(s.inner[0]) AS inner FROM {variants}",
    "CREATE TABLE {widened} (a BYTE, b INT, c DATE, d DECIMAL(6,2), e INT, f FLOAT) USING delta "
    "TBLPROPERTIES ('delta.enableTypeWidening'='true', 'delta.feature.timestampNtz'='supported')",
    "INSERT INTO {widened} VALUES (7, 8, DATE'2026-11-17', 12.25, 9, 1.5)",
    *(f"ALTER TABLE {{widened}} ALTER COLUMN {name} TYPE {kind}" for name, kind in _WIDER.items()),
    "INSERT INTO {widened} VALUES (70, 8.5, TIMESTAMP_NTZ'2026-11-17 01:00:00', 1.0625, 0.5, 1.1)",
    "CREATE TABLE {shredded} (id BIGINT, v VARIANT) USING delta "
    "TBLPROPERTIES ('delta.enableVariantShredding'='true')",
    """INSERT INTO {shredded} SELECT id, parse_json(concat('{{"a": ', id, '}}')) FROM range(0, 10, 1, 1)""",
)
NAMES = ("origin", "clone", "variants", "texts", "widened", "shredded")


def unpack(folder: Path) -> Path:
    """Copies of all tables, in a folder, to which the clone refers."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    for entry in (folder / "clone" / "_delta_log").glob("*.json"):
        entry.write_text(entry.read_text().replace(_HERE, str(folder)))
    return folder


def answer(folder: Path) -> pa.Table:
    """The widened table as Spark reads it."""
    with pa.ipc.open_file(folder / "widened.arrow") as reader:
        return reader.read_all()


def _write(folder: Path) -> None:
    tables = {name: f"delta.`{folder / name}`" for name in NAMES}
    with DeltaSpark() as spark:
        spark.sql(*(statement.format(**tables) for statement in STATEMENTS))
        found = spark.read(folder / "widened")
    with (
        pa.OSFile(str(folder / "widened.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, found.schema) as writer,
    ):
        writer.write_table(found)
    # The checkpoint of a clone has its paths too, in Parquet.
    spare = [*folder.rglob("*.crc"), *(folder / "clone" / "_delta_log").glob("*checkpoint*")]
    for path in spare:
        path.unlink(missing_ok=True)
    for entry in (folder / "clone" / "_delta_log").glob("*.json"):
        entry.write_text(entry.read_text().replace(str(folder), _HERE))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="lakefeed-odd-") as made_in:
        _write(Path(made_in))
        with tarfile.open(ARCHIVE, "w:xz") as packed:
            for path in sorted(Path(made_in).iterdir()):
                packed.add(path, path.name)
