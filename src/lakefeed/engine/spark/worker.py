"""A Python worker of Spark: what it has imported is not searched for garbage after every task."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator

import pyarrow as pa

from lakefeed.errors import LakefeedError, StoreUnavailable, TableError

_tasks = 0


def begin_task() -> None:
    """Called at the beginning of each task, in the process that runs it.

    Spark's worker collects garbage between two tasks. Among all that Spark, Arrow and pydantic have loaded
    that takes longer than a small batch, and finds nothing. With the second task all of it is there, and
    garbage was collected a moment ago: what is alive now is kept, and left out of every later search.
    """
    global _tasks
    _tasks += 1
    if _tasks == 2:
        gc.freeze()


def join_packed(plan: bytes, task: bytes) -> str:
    """Run one task of a batch's second stage; see `lakefeed.engine.task.shuffle`. Returns its manifest."""
    from lakefeed.engine.task.shuffle import run_join

    return run_join(pickle.loads(plan), pickle.loads(task)).to_json()


def work_packed(shared: bytes, item: bytes) -> bytes:
    """Do work on one item; see `lakefeed.engine.spark.spread`. Returns what came of it, or what it raised."""
    from lakefeed.stores import open_store

    begin_task()
    path, storage, work = pickle.loads(shared)
    try:
        return pickle.dumps(work(open_store(path, storage), pickle.loads(item)))
    except LakefeedError as error:
        # One with a constructor of its own would not be made again on the other side.
        return pickle.dumps(StoreUnavailable(str(error)) if error.retryable else TableError(str(error)))


def write_packed(plan: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the writing half of a task; see `lakefeed.engine.task.halves`. Yields its manifest."""
    from lakefeed.engine.task.halves import write_half

    begin_task()
    manifest = write_half(pickle.loads(plan), batches)
    if manifest is not None:
        yield pa.record_batch({"manifest": pa.array([manifest.to_json()], pa.string())})
