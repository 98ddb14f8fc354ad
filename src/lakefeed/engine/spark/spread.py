"""Work on many files of a table whose rows change, as tasks of Spark: the driver decides, workers rewrite."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow.fs as pafs

from lakefeed.engine.spark.worker import work_packed
from lakefeed.handles.handle import TableHandle
from lakefeed.tables.write.deduplicate import DeduplicateMode
from lakefeed.tables.write.spread import AT_ONCE, in_threads
from lakefeed.tables.write.upsert import UpsertMode

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_WORTH = 256 * 2**20
"""Bytes that are read, from which on tasks of Spark are faster than threads of the driver."""


class OnSpark:
    """Spreads work over the cores of a cluster, where it has more than the driver uses, and there is much."""

    def __init__(self, context: SparkContext, path: str, storage: Mapping[str, str]) -> None:
        self._context, self._path, self._storage = context, path, dict(storage)

    def __call__(
        self, store: pafs.FileSystem, work: Callable[[pafs.FileSystem, T], R], items: Sequence[T], size: int
    ) -> list[R | Exception]:
        """One task for each item: Spark gives them to workers as these come free."""
        if size < _WORTH or min(len(items), self._context.defaultParallelism) <= AT_ONCE:
            return in_threads(store, work, items, size)
        shared = pickle.dumps((self._path, self._storage, work))
        packed = [pickle.dumps(item) for item in items]
        tasks = self._context.parallelize(packed, len(packed))
        return [pickle.loads(answer) for answer in tasks.map(partial(work_packed, shared)).collect()]


def spread_over(spark: SparkSession, handle: TableHandle) -> None:
    """Let a table whose rows have keys use the cores of a session."""
    if isinstance(handle.mode, UpsertMode | DeduplicateMode):
        handle.mode.spread = OnSpark(spark.sparkContext, handle.path, handle.storage)
