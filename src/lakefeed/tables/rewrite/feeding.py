"""Rows for delta-rs to write, read ahead in a thread of their own.

delta-rs asks for rows from within its runtime, where it can read nothing itself: a scan that feeds a write
directly panics.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

_AHEAD = 4
_PATIENCE = 0.1


@contextmanager
def feeding(rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatchReader]:
    """A reader of the rows for the time of a write; what reading them raises is raised as it is."""
    ahead: queue.Queue[pa.RecordBatch | None] = queue.Queue(_AHEAD)
    stop = threading.Event()
    failures: list[BaseException] = []

    def put(batch: pa.RecordBatch | None) -> None:
        while not stop.is_set():
            try:
                return ahead.put(batch, timeout=_PATIENCE)
            except queue.Full:
                continue

    def read() -> None:
        try:
            for batch in rows:
                put(batch)
                if stop.is_set():
                    return
        except BaseException as error:
            failures.append(error)
        put(None)

    def take() -> Iterator[pa.RecordBatch]:
        while (batch := ahead.get()) is not None:
            yield batch
        if failures:
            raise failures[0]

    reader = threading.Thread(target=read, name="feeding", daemon=True)
    reader.start()
    try:
        yield pa.RecordBatchReader.from_batches(schema, take())
    except BaseException:
        if failures:
            raise failures[0] from None
        raise
    finally:
        stop.set()
        reader.join()
