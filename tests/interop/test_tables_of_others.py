"""Tables that Spark wrote, with features of many protocols: each command keeps them, or refuses by name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake.exceptions import DeltaError

from lakefeed.errors import TableError
from lakefeed.tables.detail.detail import describe
from lakefeed.tables.operations import checkpoint, restore, vacuum
from lakefeed.tables.operations import delete as deletion
from lakefeed.tables.operations import properties as settings
from lakefeed.tables.operations import repartition as layout
from lakefeed.tables.operations import replace as replacement
from lakefeed.tables.operations.changes import changes
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.protocol import features
from lakefeed.tables.rewrite import compact
from lakefeed.tables.rewrite import z_order as clustering
from lakefeed.tables.table import LakeTable
from lakefeed.upkeep.file_writer import file_writer
from support.delta_spark import DeltaSpark
from support.delta_tables import open_any, rows
from support.zoo import ZOO

INFO = operation_info("test", by="test")
REWRITES = ("optimize", "z-order", "delete", "replace", "layout")
ALL_BUT_CHECKPOINT = (*REWRITES, "restore", "properties", "vacuum")

REFUSED: dict[str, dict[str, tuple[str, ...]]] = {
    "append_only": {"delta.appendOnly is true": ("delete", "replace", "layout", "restore")},
    "generated": {"generatedColumns": ("layout",)},
    "mapping": {"columnMapping": ("layout",)},
    "clustered": {"clustering and domainMetadata": ALL_BUT_CHECKPOINT},
    "row_tracking": {"domainMetadata and rowTracking": ALL_BUT_CHECKPOINT},
    "identity": {"identityColumns": ALL_BUT_CHECKPOINT},
    "defaults": {"allowColumnDefaults": ALL_BUT_CHECKPOINT},
    "in_commit_timestamp": {"inCommitTimestamp": ALL_BUT_CHECKPOINT},
    "widened": {"typeWidening": (*ALL_BUT_CHECKPOINT, "checkpoint")},
    "letters_in_paths": {"in a way that cannot be kept here": REWRITES},
}
"""By table, a word of the refusal and the operations that say it; all others keep the content."""

NAMED = {
    "clustered": ("clustering",),
    "vectors": ("deletionVectors",),
    "v2_checkpoint": ("v2Checkpoint",),
    "writer_4": ("changeDataFeed",),
}

RICH = ("every_type", "evolved", "int96")
"""Tables whose every value is compared with what Spark read before."""

READ_BY_SPARK = (
    "plain", "check", "change_feed", "generated", "timestamp_ntz", "vectors", "v2_checkpoint",
    "signs_in_paths", "mapping", "clustered", "row_tracking", *RICH,
)  # fmt: skip
"""One for each way in which a table is changed or kept; each takes Spark more than a second."""


def optimize(table: LakeTable) -> None:
    plan = compact.plan(table)
    assert plan.steps
    compact.run(table, plan, INFO, file_writer)


def z_order(table: LakeTable) -> None:
    clustering.run(table, clustering.plan(table, ["id", "v"]), INFO, file_writer)


def replace(table: LakeTable) -> None:
    """Put the rows with one id in the place of themselves."""
    fix = Path(table.store.base_path).with_suffix(".parquet")
    try:
        found = pa.RecordBatchReader.from_stream(table.delta.scan()).read_all().cast(table.schema)
    except DeltaError:
        found = pa.table({"id": [11]})
    pq.write_table(found.filter(pc.equal(found["id"], 11)), fix)
    plan = replacement.plan(table, "id = 11", replacement.Rows.at(str(fix), {}))
    assert plan.removed_rows == plan.source.count == 1
    replacement.run(table, plan, INFO)


RUN: dict[str, Callable[[LakeTable], Any]] = {
    "checkpoint": lambda table: checkpoint.run(table, checkpoint.plan(table)),
    "properties": lambda table: settings.run(table, settings.plan(table, {"mine": "x"}), INFO),
    "optimize": optimize,
    "z-order": z_order,
    "vacuum": lambda table: vacuum.run(table, vacuum.plan(table, retain=0.001, allow_short=True), INFO),
    "delete": lambda table: deletion.run(table, deletion.plan(table, "id = 3"), INFO),
    "replace": replace,
    "layout": lambda table: layout.run(table, layout.plan(table, ["v"]), INFO),
    "restore": lambda table: restore.run(table, restore.plan(table, table.version - 1), INFO),
}


def refusal(name: str, operation: str) -> str | None:
    return next((word for word, kinds in REFUSED.get(name, {}).items() if operation in kinds), None)


def look_after(name: str, path: Path) -> list[str]:
    """Run every operation, one after the other; the rows that must be there in the end."""
    expected, named = rows(path), features(open_any(path).delta)
    without = [row for row in expected if "('id', 3)" not in row]
    for operation, run in RUN.items():
        word, version = refusal(name, operation), open_any(path).version
        if word is None:
            run(open_any(path))
            expected = without if operation == "delete" else expected
        else:
            with pytest.raises(TableError) as refused:
                run(open_any(path))
            assert word in str(refused.value)
            assert open_any(path).version == version
        assert rows(path) == expected, operation
        assert features(open_any(path).delta) == named, operation
    return expected


@pytest.mark.parametrize("name", ZOO)
def test_content_stays_equal_for_duckdb_or_the_command_refuses_and_says_why(
    name: str, zoo: Path, tmp_path: Path
) -> None:
    shutil.copytree(zoo / name, tmp_path / "t")

    left = look_after(name, tmp_path / "t")

    deleted = refusal(name, "delete") is None
    assert len(left) == 20 - deleted - (name == "vectors") + (name == "evolved")


@pytest.mark.parametrize("name", ZOO)
def test_every_table_can_be_looked_at(name: str, zoo: Path) -> None:
    table = open_any(zoo / name)

    found = describe(table, ["id"])

    count = 20 + (name == "evolved") - (name == "vectors")
    assert (found.table.rows, found.schema["id"].split()[0]) == (count, "long")
    assert found.owners == ["Apache-Spark/4.2.0 Delta-Lake/4.4.0"]
    assert all(word in " ".join(found.features) for word in NAMED.get(name, ()))
    if name == "widened":
        with pytest.raises(TableError, match=r"which `table changes` cannot keep"):
            changes(table, 1, 1)
    else:
        rows_of_version_1 = [row for batch in changes(table, 1, 1).batches for row in batch.to_pylist()]
        assert sorted(row["id"] for row in rows_of_version_1) == list(range(10))


def test_spark_reads_the_same_values_after_all_that_and_writes_on(
    zoo: Path, tmp_path: Path, delta_spark: DeltaSpark
) -> None:
    expected = {}
    for name in READ_BY_SPARK:
        shutil.copytree(zoo / name, tmp_path / name)
        expected[name] = look_after(name, tmp_path / name)

    for name in READ_BY_SPARK:
        found = delta_spark.read(tmp_path / name)
        texts = [repr(sorted(row.items())) for row in found.select(["id", "day", "v"]).to_pylist()]
        assert sorted(texts) == sorted(basic(row) for row in expected[name]), name
        if name in RICH:
            was = delta_spark.read(zoo / name)
            assert told(found) == told(was.filter(pc.not_equal(was["id"], 3))), name
    delta_spark.sql(f"DELETE FROM delta.`{tmp_path / 'plain'}` WHERE id < 5")
    assert min(delta_spark.read(tmp_path / "plain")["id"].to_pylist()) == 5


def basic(row: str) -> str:
    """The columns that all tables have, of a row in DuckDB's words: by name, so `day` and `id` before `v`."""
    parts = [re.search(rf"\('{name}', (?:'[^']*'|[^)]*)\)", row) for name in ("day", "id", "v")]
    return f"[{', '.join(part[0] for part in parts if part)}]"


def told(table: pa.Table) -> list[str]:
    names = sorted(table.column_names)
    return sorted(repr([(name, row[name]) for name in names]) for row in table.to_pylist())
