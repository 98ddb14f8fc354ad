"""Advice: what a table's own statistics say about its layout, its files and its retention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.errors import UsageError
from lakefeed.figures import readable_size
from lakefeed.tables.data_files import add_actions, data_files
from lakefeed.tables.log.data_file import DataFile, by_partition, extent, small_below
from lakefeed.tables.retention import DAY, DELETED_FILES, LOG_ENTRIES, retention
from lakefeed.tables.rewrite.compact import target_of
from lakefeed.tables.table import LakeTable
from lakefeed.text import counted, listed, suggestion
from lakefeed.units import format_duration

GOOD_PARTITION = 1024**3
"""Bytes below which a partition of its own costs more than it saves."""

_MANY_PARTITIONS = 20
_MANY_SMALL = 10
_FEW_FILES = 4
_READS_TOO_MUCH = 0.5
_PROBES = 200
_LONG_LOG = 200


def advice(table: LakeTable, filters: Sequence[str] = ()) -> list[str]:
    """Sentences about what to do, most important first; none for a table in good shape.

    `filters` are columns that queries filter by: each gets a word on how much such a query reads.
    """
    files = data_files(table)
    return [
        *_retention(table),
        *_partitioning(table, files),
        *_compaction(table, files),
        *_clustering(table, files, filters),
        *_log(table),
    ]


def read_share(actions: pa.Table, column: str) -> float | None:
    """The share of files that a query for one value of a column has to read, on average over such values.

    From the smallest and largest value of each file; None where files have no statistics.
    """
    low, high = f"min.{column}", f"max.{column}"
    if low not in actions.schema.names or high not in actions.schema.names:
        return None
    lows, highs = actions.column(low), actions.column(high)
    known = pc.and_(pc.is_valid(lows), pc.is_valid(highs))
    unknown = len(lows) - (pc.sum(known).as_py() or 0)
    lows, highs = lows.filter(known), highs.filter(known)
    if not len(lows):
        return None
    probes = lows.take(pa.array(range(0, len(lows), max(1, len(lows) // _PROBES))))
    hits = [_hits(lows, highs, probe) + unknown for probe in probes]
    return sum(hits) / len(hits) / (len(lows) + unknown)


def _hits(lows: pa.ChunkedArray, highs: pa.ChunkedArray, value: Any) -> int:
    return pc.sum(pc.and_(pc.less_equal(lows, value), pc.greater_equal(highs, value))).as_py() or 0


def _retention(table: LakeTable) -> Iterator[str]:
    properties = table.properties
    files, log = retention(properties, DELETED_FILES), retention(properties, LOG_ENTRIES)
    if files < DAY:
        yield (
            f"{DELETED_FILES} is {format_duration(files)}: a query or a stream that takes longer finds its "
            f"files gone after a vacuum. lakefeed table properties {quote(table.path)} "
            f'--set "{DELETED_FILES}=interval 7 days" --yes'
        )
    if log < files:
        yield (
            f"{LOG_ENTRIES} is {format_duration(log)}, but old files are kept for {format_duration(files)}: "
            "a streaming reader that pauses for longer cannot continue, although the files exist. "
            f'lakefeed table properties {quote(table.path)} --set "{LOG_ENTRIES}=interval 30 days" --yes'
        )
    if table.transactions and "delta.setTransactionRetentionDuration" in properties:
        yield (
            "delta.setTransactionRetentionDuration lets positions expire: events would be repeated after a "
            f"pause. lakefeed table properties {quote(table.path)} "
            "--unset delta.setTransactionRetentionDuration --yes"
        )


def _partitioning(table: LakeTable, files: list[DataFile]) -> Iterator[str]:
    names, groups = table.partition_columns, by_partition(files)
    whole = extent(files)
    if not names or len(groups) < _MANY_PARTITIONS:
        return
    mean = whole.bytes // len(groups)
    if mean >= GOOD_PARTITION:
        return
    yield (
        f"Partitioned by {listed(names)} into {counted(len(groups), 'partition')} of about "
        f"{readable_size(mean)}; below {readable_size(GOOD_PARTITION)} each, they make small files and save "
        "little. "
        f"{_better_layout(table, names, groups)}"
    )


def _better_layout(table: LakeTable, names: list[str], groups: dict[Any, list[DataFile]]) -> str:
    counts = {name: len({dict(partition)[name] for partition in groups}) for name in names}
    widest = max(counts, key=lambda name: counts[name])
    rest = [name for name in names if name != widest]
    return (
        f"{widest} alone has {counts[widest]:,} values: cluster by it instead. "
        f'lakefeed table replace {quote(table.path)} --partition-by "{",".join(rest)}" --yes'
    )


def _compaction(table: LakeTable, files: list[DataFile]) -> Iterator[str]:
    target = target_of(table)
    small = [file for file in files if file.size < small_below(target)]
    groups = [group for group in by_partition(small).values() if len(group) > 1]
    crowded = sum(len(group) for group in groups)
    left = sum(-(-sum(file.size for file in group) // target) for group in groups)
    if crowded < _MANY_SMALL or crowded < 2 * left:
        return
    yield (
        f"{crowded:,} of {counted(len(files), 'file')} are small (below "
        f"{readable_size(small_below(target))}) and would become {left:,}. "
        f"lakefeed table optimize {quote(table.path)} --yes"
    )


def _clustering(table: LakeTable, files: list[DataFile], filters: Sequence[str]) -> Iterator[str]:
    wanted = [name for name in filters if name not in table.partition_columns]
    for name in wanted:
        if name not in table.schema.names:
            near = suggestion(name, table.schema.names)
            raise UsageError(f"--filters: {table.path} has no column {name!r}{near}")
    if not wanted or len(files) < _FEW_FILES:
        return
    actions = add_actions(table.delta)
    shares = {name: read_share(actions, name) for name in wanted}
    for name, share in shares.items():
        if share is None:
            yield (
                f"The files have no statistics of {name}, so a filter on it reads all of them. "
                f"lakefeed table properties {quote(table.path)} "
                "--set delta.dataSkippingStatsColumns=... --yes"
            )
    poor = [name for name, share in shares.items() if share is not None and share > _READS_TOO_MUCH]
    if poor:
        reading = listed(f"{name} reads {shares[name]:.0%}" for name in poor)
        yield (
            f"Of {len(files):,} files, a filter on one value of {reading}. "
            f"lakefeed table optimize {quote(table.path)} --z-order {','.join(poor)} --yes"
        )


def _log(table: LakeTable) -> Iterator[str]:
    since = table.log().since_checkpoint
    if since >= _LONG_LOG:
        yield (
            f"The log has {since:,} entries since its last checkpoint; every reader reads them all. "
            f"lakefeed table checkpoint {quote(table.path)} --yes"
        )
