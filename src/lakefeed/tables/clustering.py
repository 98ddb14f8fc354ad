"""Clustering: rows that are near each other in some columns come to lie in the same files (z-order)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from lakefeed.errors import UsageError
from lakefeed.pipeline.wording import suggestion
from lakefeed.stores import store_errors
from lakefeed.tables.compaction import codec_of, target_of, writer_properties
from lakefeed.tables.log import entries
from lakefeed.tables.operation import Account, Extent, Report, change, place
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.snapshot import (
    Partition,
    by_partition,
    data_files,
    extent,
    partition_filter,
    refuse_other_columns,
)
from lakefeed.tables.table import LakeTable, account_of, commit_properties


@dataclass(frozen=True)
class Step:
    """One partition that has files which are not clustered by these columns yet. One step is one commit."""

    partition: Partition
    before: Extent
    unclustered: Extent
    codec: str


@dataclass(frozen=True)
class Plan:
    """What clustering would do; nothing has been changed."""

    version: int
    columns: tuple[str, ...]
    target_size: int
    steps: tuple[Step, ...]
    table: Extent

    @property
    def before(self) -> Extent:
        """What would be rewritten: each such partition whole."""
        return sum((step.before for step in self.steps), Extent())


def plan(
    table: LakeTable, columns: Sequence[str], *, where: str | None = None, target_size: int | None = None
) -> Plan:
    """Find the partitions with files that no clustering by the same columns has written.

    So a second run has nothing to do. Which files a clustering wrote is in the log; once the log is cleaned
    past it, the partition is rewritten again.
    """
    refuse_unkept(table, "cluster")
    _check_columns(table, columns)
    if where is not None:
        refuse_other_columns(table, where)
    done = _clustered(table, columns)
    steps = []
    for partition, files in by_partition(data_files(table.delta, where)).items():
        new = [file for file in files if file.path not in done]
        if new:
            steps.append(Step(partition, extent(files), extent(new), codec_of(table.store, files)))
    whole = extent(data_files(table.delta))
    return Plan(table.version, tuple(columns), target_size or target_of(table), tuple(steps), whole)


def run(
    table: LakeTable, plan: Plan, account: Account, *, on_step: Callable[[Step], None] = lambda step: None
) -> Report:
    """Rewrite every partition of the plan, oldest first, one commit each. Raises Conflict between commits."""
    before = extent(data_files(table.delta))
    made: list[int] = []
    for step in plan.steps:
        made += run_step(table, plan, step, account)
        on_step(step)
    return Report("cluster", before, extent(data_files(table.delta)), tuple(made))


def run_step(table: LakeTable, plan: Plan, step: Step, account: Account) -> tuple[int, ...]:
    """Rewrite one partition in one commit that says it changes no data; the version made, if any."""
    told = {**account, "columns": list(plan.columns), "partition": dict(step.partition)}

    def rewrite(delta: DeltaTable) -> None:
        delta.optimize.z_order(
            list(plan.columns),
            partition_filters=partition_filter(step.partition),
            target_size=plan.target_size,
            writer_properties=writer_properties(step.codec),
            commit_properties=commit_properties({}, told),
        )

    return change(table, "clustering", rewrite)


def _clustered(table: LakeTable, columns: Sequence[str]) -> set[str]:
    """The files that clusterings by these columns have written, Spark's among them."""
    found: set[str] = set()
    with store_errors(table.path):
        for entry in entries(table.store):
            told = account_of(entry.info)
            by = told.get("columns") if told.get("kind") == "cluster" else _spark_columns(entry.info)
            if by == list(columns):
                found.update(unquote(add["path"]) for add in entry.adds)
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
                f"--z-order: {place(table)} has no column {name!r}{suggestion(name, schema.names)}"
            )
        if name in table.partition_columns:
            raise UsageError(f"--z-order: {name!r} is a partition column; each of its files has one value.")
        if pa.types.is_nested(schema.field(name).type):
            raise UsageError(f"--z-order: {name!r} is a {schema.field(name).type}, which has no order.")
