"""The second stage of a batch: files that several tasks wrote for one partition value become one.

What a task writes depends on its events, which nobody knows before they are read. So tasks write first, and
where `shuffle_by_partition` is on, further tasks join files of one value before anything is committed. They
are files that no table has yet: a crash leaves orphans, as after any other task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakefeed.engine.batch.manifest import Manifest, TableManifest
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.faultpoints import passing
from lakefeed.errors import LakefeedError, TableError
from lakefeed.files import WrittenFile
from lakefeed.files.join import join_files
from lakefeed.files.names import Serial
from lakefeed.files.parquet import FileTarget
from lakefeed.handles.table_plan import TableId
from lakefeed.stores import open_store

_FULL = 0.5
"""A file of this share of `target_file_size` is large enough as it is."""


@dataclass(frozen=True)
class JoinTask:
    """Files that one task joins, by table; files of one partition value are never in two tasks."""

    files: dict[TableId, list[WrittenFile]]
    serial: Serial


def join_tasks(plan: FlowPlan, manifests: Sequence[Manifest], batch: int, cores: int) -> list[JoinTask]:
    """The tasks that are worth it: as many as there are cores, of about equal size."""
    groups = [group for table, target in _targets(plan) for group in _groups(table, target, manifests)]
    groups.sort(key=lambda group: sum(file.size for file in group[1]), reverse=True)
    shares: list[tuple[int, dict[TableId, list[WrittenFile]]]] = [(0, {}) for _ in groups[:cores]]
    for table, files in groups:
        at = min(range(len(shares)), key=lambda one: shares[one][0])
        size, share = shares[at]
        share.setdefault(table, []).extend(files)
        shares[at] = size + sum(file.size for file in files), share
    first = len(manifests)
    return [JoinTask(share, Serial(batch, first + at)) for at, (_, share) in enumerate(shares)]


def run_join(plan: FlowPlan, task: JoinTask) -> Manifest:
    """Join the files of a task, on a worker. A table that cannot be written is told of in the manifest."""
    passing("join_started")
    manifest = Manifest()
    known = {table.name: table for table in plan.tables}
    targets = dict(_targets(plan))
    for table, files in task.files.items():
        front = known[table.table]
        path = front.routed[table.key].path if table.key else front.path
        try:
            store = open_store(path, dict(front.storage))
            joined = join_files(store, targets[table], files, task.serial)
            manifest.tables[table] = TableManifest(table, files=joined)
        except TableError as error:
            manifest.tables[table] = TableManifest(table, error=error)
        except LakefeedError as error:
            return Manifest(error=error)
    return manifest


def replaced(manifests: Sequence[Manifest], tasks: Sequence[JoinTask], joined: Sequence[Manifest]) -> None:
    """Replace the files that the joined ones were made of."""
    gone = {(table, file.path) for task in tasks for table, files in task.files.items() for file in files}
    for manifest in manifests:
        for table, result in manifest.tables.items():
            result.files = [file for file in result.files if (table, file.path) not in gone]
    for one in joined:
        for table, result in one.tables.items():
            home = next(manifest.tables[table] for manifest in manifests if table in manifest.tables)
            home.files += result.files
            home.error = home.error or result.error


def _targets(plan: FlowPlan) -> Iterator[tuple[TableId, FileTarget]]:
    """The tables whose rows are shuffled; those of a route one by one."""
    for table in plan.tables:
        if table.shuffles and table.target:
            yield TableId(table.name), table.target
        elif table.shuffles:
            yield from ((TableId(table.name, key), one.target) for key, one in table.routed.items())


def _groups(
    table: TableId, target: FileTarget, manifests: Sequence[Manifest]
) -> Iterator[tuple[TableId, list[WrittenFile]]]:
    """Files of one partition value that several tasks have written; none of a table that gets nothing."""
    results = [manifest.tables[table] for manifest in manifests if table in manifest.tables]
    if any(one.error or one.proposal is not None for one in results):
        return
    found: dict[tuple[str | None, ...], list[WrittenFile]] = {}
    for one in results:
        for file in one.files:
            if file.size < _FULL * target.target_file_size and file.rows != target.max_rows_per_file:
                found.setdefault(tuple(file.partition_values.values()), []).append(file)
    yield from ((table, files) for files in found.values() if len(files) > 1)
