"""Positions that count events one by one: where a batch of them ends, and how it is cut into tasks.

What a source has unless it knows better. A source whose positions have gaps, such as a version and an index
in one number, has its own methods instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakefeed.events import OffsetRange, Offsets, Split

ROWS_A_TASK = 50_000
"""So many events are worth a task of their own."""


def rows_between(position: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
    """Events of each partition between its position and its end."""
    return {partition: max(0, ends.get(partition, at) - at) for partition, at in position.items()}


def next_end(position: Offsets, ends: Offsets, limit: int) -> Offsets:
    """Share `limit` rows out over the partitions, in proportion to what waits in each."""
    waiting = rows_between(position, ends)
    total = sum(waiting.values())
    if total <= limit:
        return {partition: at + waiting[partition] for partition, at in position.items()}
    shares = {partition: count * limit // total for partition, count in waiting.items()}
    left = limit - sum(shares.values())
    for partition in sorted(waiting, key=lambda name: shares[name] - waiting[name]):
        more = min(left, waiting[partition] - shares[partition])
        shares[partition] += more
        left -= more
    return {partition: at + shares[partition] for partition, at in position.items()}


def task_count(rows: int, cores: int, rows_a_task: int | None = None) -> int:
    """How many tasks read so many rows: one for few, so that they become one file, else one for each core."""
    return max(1, min(cores, rows // (rows_a_task or ROWS_A_TASK)))


def splits(ranges: Sequence[OffsetRange], cores: int, rows_a_task: int | None = None) -> list[Split]:
    """Tasks of about equal size, which may cut a partition in two."""
    total = sum(map(len, ranges))
    count = task_count(total, cores, rows_a_task)
    limits = [total * (i + 1) // count for i in range(count)]
    tasks: list[list[OffsetRange]] = [[] for _ in limits]
    done, task = 0, 0
    for span in ranges:
        at = span.start
        while at < span.end:
            take = min(span.end - at, limits[task] - done)
            tasks[task].append(replace(span, start=at, end=at + take))
            at, done = at + take, done + take
            if done == limits[task] and task < count - 1:
                task += 1
    return [tuple(task) for task in tasks if task]
