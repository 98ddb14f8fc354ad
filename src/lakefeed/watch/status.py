"""Status: what the tables of a pipeline hold and how far behind their sources they are. Starts no JVM."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.engine.lake import Lake, Place
from lakefeed.errors import LakefeedError
from lakefeed.pipeline.model import Pipeline
from lakefeed.sources import Offsets, source_of
from lakefeed.tables.positions import positions_of
from lakefeed.tables.table import LakeTable

_SMALL_SHARE = 0.5
"""A file below this share of the target size counts as small."""


@dataclass
class PartitionStatus:
    """One partition of a source, as one table sees it.

    `end` and `lag` are None when the source does not answer.
    """

    next: int
    end: int | None = None
    lag: int | None = None


@dataclass
class TableStatus:
    """One table. A table that does not exist yet has no version."""

    name: str
    path: str
    version: int | None = None
    rows: int = 0
    files: int = 0
    small_files: int = 0
    bytes: int = 0
    last_commit: str | None = None
    offsets: dict[str, dict[str, PartitionStatus]] = field(default_factory=dict)
    lag: int | None = None
    error: str | None = None


@dataclass
class PipelineStatus:
    """All tables of a pipeline, and what keeps a source from answering."""

    pipeline: str
    tables: list[TableStatus]
    dead_letters: TableStatus
    sources: dict[str, str | None]
    """None where the source answers, else why it does not."""


def status(pipeline: Pipeline) -> PipelineStatus:
    """Look at every table's log and ask every source for its ends."""
    ends: dict[str, Offsets] = {}
    troubles: dict[str, str | None] = {}
    for name in pipeline.sources:
        try:
            client = source_of(pipeline, name).client(pipeline.name, name)
            try:
                ends[name], troubles[name] = client.latest(), None
            finally:
                client.close()
        except LakefeedError as error:
            troubles[name] = str(error)
    lake = Lake(pipeline)
    lake.find_routed()
    tables = [_table(pipeline, place, ends) for place in lake.places.values()]
    return PipelineStatus(pipeline.name, tables, _table(pipeline, lake.letters, {}), troubles)


def _table(pipeline: Pipeline, place: Place, ends: dict[str, Offsets]) -> TableStatus:
    found = TableStatus(place.name, place.path)
    try:
        table = LakeTable.open(place.name, place.path, place.storage, place.store)
    except LakefeedError as error:
        found.error = str(error)
        return found
    if table is None:
        return found
    target = place.spec.target_file_size if place.spec else 0
    _describe(found, table, target * _SMALL_SHARE)
    if place.spec is None:
        return found
    for source in place.spec.from_:
        held = positions_of(table.transactions, pipeline.name, source)
        found.offsets[source] = {
            partition: _partition(at, ends.get(source, {}).get(partition))
            for partition, at in sorted(held.items())
        }
    lags = [one.lag for source in found.offsets.values() for one in source.values()]
    found.lag = None if None in lags else sum(lag for lag in lags if lag is not None)
    return found


def _describe(found: TableStatus, table: LakeTable, small: float) -> None:
    # `pa.table` would import pandas to see whether it is given a data frame.
    adds: Any = pa.RecordBatchReader.from_stream(table.delta.get_add_actions(flatten=True)).read_all()
    sizes = adds.column("size_bytes")
    found.version = table.version
    found.files = adds.num_rows
    found.bytes = pc.sum(sizes).as_py() or 0
    found.small_files = pc.sum(pc.less(sizes, small)).as_py() or 0
    found.rows = pc.sum(adds.column("num_records")).as_py() or 0 if "num_records" in adds.schema.names else 0
    last = table.delta.history(1)
    if last and "timestamp" in last[0]:
        moment = dt.datetime.fromtimestamp(last[0]["timestamp"] / 1000, dt.UTC)
        found.last_commit = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _partition(at: int, end: int | None) -> PartitionStatus:
    return PartitionStatus(at, end, None if end is None else max(0, end - at))
