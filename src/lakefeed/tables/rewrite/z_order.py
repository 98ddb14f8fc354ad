"""Clustering: rows that are near each other in some columns come to lie in the same files (z-order)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.errors import UsageError
from lakefeed.tables.data_files import codec_of, data_files, read_rows
from lakefeed.tables.log.data_file import Extent, by_partition, extent
from lakefeed.tables.operations.operation import CommitInfo
from lakefeed.tables.rewrite.compact import target_of
from lakefeed.tables.rewrite.rewrite import RewritePlan, Step, Writers, files_to_rewrite, rewrite
from lakefeed.tables.rewrite.rewrite import run as run
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.text import suggestion

_BATCH_ROWS = 100_000
_MOST_BITS = 16


@dataclass(frozen=True)
class ZOrderStep(Step):
    """One partition, whole, that has files which are not clustered by these columns yet."""

    unclustered: Extent


@dataclass(frozen=True)
class ZOrderPlan(RewritePlan[ZOrderStep]):
    """What clustering would do; nothing has been changed."""

    kind = "cluster"
    columns: tuple[str, ...]

    def run_step(self, table: LakeTable, step: ZOrderStep, commit_info: CommitInfo, writers: Writers) -> int:
        """Rewrite one partition; its rows are sorted in memory, all at once."""
        info = {**commit_info, "columns": list(self.columns), "partition": dict(step.partition)}
        writer = writers(table, self.codec, self.target_size)
        ordered = _z_ordered(read_rows(table, step.files), table.schema, self.columns)
        return rewrite(table, step.files, ordered, writer, info)


def plan(
    table: LakeTable,
    columns: Sequence[str],
    *,
    where: str | None = None,
    target_size: int | None = None,
    first_entry: int = 0,
) -> ZOrderPlan:
    """Find the partitions with files that no clustering by the same columns has written, oldest first.

    So a second run has nothing to do. Which files a clustering wrote is in the log; once the log is cleaned
    past it, the partition is rewritten again. A caller that remembers what was clustered need not have all of
    a long log read: entries before `first_entry` are not read.
    """
    _check_columns(table, columns)
    files = files_to_rewrite(table, "cluster", where)
    done = _clustered(table, columns, first_entry)
    steps = []
    for partition, group in by_partition(files).items():
        new = [file for file in group if file.path not in done]
        if new:
            steps.append(ZOrderStep(partition, tuple(group), extent(new)))
    whole = extent(files if where is None else data_files(table))
    target, codec = target_size or target_of(table), codec_of(table.store, files)
    return ZOrderPlan(table.version, target, tuple(steps), whole, codec, tuple(columns))


def _z_ordered(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches(batches, schema)
    order = pa.array(z_order(rows.select(list(columns)).columns))
    for start in range(0, len(order), _BATCH_ROWS):
        yield from rows.take(order.slice(start, _BATCH_ROWS)).combine_chunks().to_batches()


def z_order(columns: Sequence[pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """The order of rows along a Z-shaped curve through the ranks of their values.

    Ranks, not values, so that each column has the same say whatever its type and spread.
    """
    bits = min(_MOST_BITS, 63 // len(columns))
    keys = np.zeros(len(columns[0]), dtype=np.uint64)
    for number, column in enumerate(columns):
        ranks = _ranks(column)
        scaled = ranks * ((1 << bits) - 1) // max(int(ranks.max(initial=0)), 1)
        for bit in range(bits):
            keys |= ((scaled >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * len(columns) + number)
    return np.argsort(keys, kind="stable")


def _ranks(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    ranks: npt.NDArray[np.uint64] = pc.rank(column.combine_chunks(), tiebreaker="dense").to_numpy()
    return ranks.astype(np.uint64) - np.uint64(1)


def _clustered(table: LakeTable, columns: Sequence[str], first: int) -> set[str]:
    """The files that clusterings by these columns have written, Spark's among them."""
    found: set[str] = set()
    for entry in table.log().entries(first):
        ours = commit_info_of(entry.info)
        by = ours.get("columns") if ours.get("kind") == "cluster" else _spark_columns(entry.info)
        if by == list(columns):
            found.update(file.path for file in entry.adds)
    return found


def _spark_columns(info: dict[str, object]) -> object:
    parameters = info.get("operationParameters")
    text = parameters.get("zOrderBy") if isinstance(parameters, dict) else None
    return json.loads(text) if isinstance(text, str) and text.startswith("[") else None


def _check_columns(table: LakeTable, columns: Sequence[str]) -> None:
    if not columns:
        raise UsageError("--z-order needs at least one column.")
    schema = table.schema
    for name in columns:
        if name not in schema.names:
            raise UsageError(
                f"--z-order: {table.path} has no column {name!r}{suggestion(name, schema.names)}"
            )
        if name in table.partition_columns:
            raise UsageError(f"--z-order: {name!r} is a partition column; each of its files has one value.")
        if pa.types.is_nested(schema.field(name).type):
            raise UsageError(f"--z-order: {name!r} is a {schema.field(name).type}, which has no order.")
