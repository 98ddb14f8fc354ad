"""How a table lies in files: its partitions, how large their files are, and which are worth a rewrite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from lakefeed.pipeline.partition_filter import Condition, check_partition_filter

_TIERS = (64, 8, 1)
"""Small files are first gathered to this part of the target size, so that no row is rewritten often."""


@dataclass(frozen=True)
class Partition:
    """The files of one combination of partition values; an unpartitioned table is one partition."""

    values: tuple[tuple[str, Any], ...]
    sizes: tuple[int, ...]
    newest: float
    """When its newest file was added, in seconds since the epoch."""

    @property
    def filters(self) -> list[tuple[str, str, Any]] | None:
        """The partition as delta-rs wants it named; a null is written as an empty text there."""
        return [(name, "=", "" if value is None else value) for name, value in self.values] or None

    @property
    def key(self) -> str:
        """A name for it, the same in every run."""
        return "/".join(f"{name}={value}" for name, value in self.values)


def partitions(delta: DeltaTable) -> list[Partition]:
    """The partitions of the snapshot, those first that have waited longest since their last file."""
    adds = pa.table(delta.get_add_actions(flatten=True))
    names = list(delta.metadata().partition_columns)
    columns = [adds.column(f"partition.{name}").to_pylist() for name in names]
    keys = zip(*columns, strict=True) if columns else iter([()] * adds.num_rows)
    files: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    sizes, added = adds.column("size_bytes").to_pylist(), adds.column("modification_time").to_pylist()
    for key, size, at in zip(keys, sizes, added, strict=True):
        files.setdefault(key, []).append((size, at))
    found = [
        Partition(
            tuple(zip(names, key, strict=True)),
            tuple(size for size, _ in these),
            max(at for _, at in these) / 1000,
        )
        for key, these in files.items()
    ]
    return sorted(found, key=lambda partition: partition.newest)


def matching(
    delta: DeltaTable, found: Iterable[Partition], conditions: tuple[Condition, ...]
) -> Iterator[Partition]:
    """The partitions that a filter lets through. Raises TableError when it does not fit the table."""
    schema = pa.schema(delta.schema().to_arrow())
    kinds = {name: schema.field(name).type for name in delta.metadata().partition_columns}
    check_partition_filter(conditions, kinds)
    for partition in found:
        values = dict(partition.values)
        if all(one.holds(values[one.column], kinds[one.column]) for one in conditions):
            yield partition


def gathering_size(partition: Partition, target: int, min_files: int, *, cold: bool) -> int | None:
    """The file size to which a partition should be compacted now; None when there is nothing worth it.

    A partition that still grows is gathered tier by tier: `min_files` files smaller than half a tier become
    one of that tier, so each row is rewritten once a tier and not at every look. A cold one gets its final
    files from two small ones on.
    """
    if cold:
        return target if _smaller(partition, target) >= 2 else None
    for part in _TIERS:
        tier = target // part
        if tier and _smaller(partition, tier) >= min_files:
            return tier
    return None


def _smaller(partition: Partition, size: int) -> int:
    return sum(2 * one < size for one in partition.sizes)
