"""The fused task: fetch, decode, shape and write in one pass over Arrow, on a worker.

Nothing here touches a table's log. A task may run twice or die at any line: its files belong to no table
until the driver commits them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace

from lakefeed.engine.batch.manifest import Manifest, listed
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.defects import defect_of
from lakefeed.engine.faultpoints import passing
from lakefeed.engine.task.stream_tables import StreamTables
from lakefeed.engine.task.table_task import TableTask
from lakefeed.errors import LakefeedError, TableError
from lakefeed.events import Completed, EndsEarlier, Events, OffsetRange
from lakefeed.files.names import Serial
from lakefeed.formats import Decoded

MOST_WAITING = 128 * 2**20
"""Bytes of rows that wait to be written, in all tables of a task together."""


def run_task(
    plan: FlowPlan,
    ranges: Sequence[OffsetRange],
    given: Iterable[Events] | None = None,
    serial: Serial | None = None,
) -> Manifest:
    """Read the ranges and write what becomes of them. Errors of the source come back in the manifest.

    Events that are `given` need not be read: dead letters have theirs with them.
    """
    takers = [one for one in plan.tables if one.takes_rows(ranges[0])]
    tables = [(StreamTables if one.own_types else TableTask)(plan, one, ranges, serial) for one in takers]
    passes = taking(plan, tables, ranges, given)
    while True:
        try:
            next(passes)
        except StopIteration as end:
            manifest: Manifest = end.value
            return manifest


def taking(
    plan: FlowPlan,
    tables: Sequence[TableTask | StreamTables],
    ranges: Sequence[OffsetRange],
    given: Iterable[Events] | None = None,
) -> Generator[None, None, Manifest]:
    """Let tables take the events of the ranges, some at a time, and stop after each; returns the manifest."""
    passing("task_started")
    manifest = Manifest(list(ranges), read={span.partition: 0 for span in ranges})
    largest, has_begun = 0, False
    try:
        for events in plan.source.read(ranges) if given is None else given:
            if len(events) and not has_begun:
                has_begun = True
                if tables and all(table.proposes for table in tables):
                    # The columns of all streams came before the first event: all tables get theirs at once,
                    # and what follows is read when they have them.
                    break
            _take(tables, events)
            yield
            if sum(table.waiting_bytes for table in tables) > MOST_WAITING:
                for table in tables:
                    table.flush()
            for partition, count in events.counts().items():
                manifest.read[partition] += count
            for part, count in events.parts().items():
                manifest.parts[part] = manifest.parts.get(part, 0) + count
            manifest.part_errors |= events.part_errors()
            size, one = events.size()
            manifest.bytes_read += size
            # One large event cannot be parted, so it does not count.
            largest = max(largest, one)
            if plan.most_bytes and given is None and manifest.bytes_read - largest > plan.most_bytes:
                for table in tables:
                    table.drop_files()
                return replace(manifest, tables={}, overfull=True)
        for table in tables:
            manifest.tables |= table.close()
    except EndsEarlier as found:
        for table in tables:
            table.drop_files()
        return replace(manifest, tables={}, ends=found.ends)
    except BaseException as error:
        for table in tables:
            table.drop_files()
        return Manifest(list(ranges), error=told(error, ranges))
    passing("task_written")
    return manifest


def told(error: BaseException, ranges: Sequence[OffsetRange]) -> LakefeedError:
    """An error of a task as its manifest tells it; raises what is for Spark to see."""
    if isinstance(error, LakefeedError):
        return error
    # What the machine refuses is no defect, and neither is being killed.
    if isinstance(error, OSError | MemoryError) or not isinstance(error, Exception):
        raise error
    return defect_of(error, f"took {listed(ranges)}")


def _take(tables: Sequence[TableTask | StreamTables], events: Events) -> None:
    """Decode once for all tables that want the same columns."""
    completed: dict[frozenset[str] | None, Completed] = {frozenset(): Completed(events)}
    decoded: dict[tuple[object, ...], Decoded] = {}
    newest = events.newest()
    for table in (one.taker(events) for one in tables):
        if table.asks not in completed:
            completed[table.asks] = events.completed(table.asks)
        own = completed[table.asks]
        wants = (id(own.events), *table.wants)
        try:
            if wants not in decoded:
                decoded[wants] = table.decoder.decode(own.events)
        except TableError as error:
            table.refuse(error)
            continue
        table.take(own, decoded[wants])
        table.note(newest)
