"""The positions that a table holds of one source: Lakefeed's own, and beside them kafka-delta-ingest's.

With `app_id`, each commit says how far the table has come under both names. Whoever of the two has come
further was the last to write: Lakefeed goes on from there, and so does kafka-delta-ingest.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.events import Offsets
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.table import Table
from lakefeed.sources import Source, source_of
from lakefeed.sources.subscription import taken
from lakefeed.tables.positions import ingest_id, ingest_positions, positions_of


def own_positions(pipeline: Pipeline, source: str, table: Table, transactions: Mapping[str, int]) -> Offsets:
    """The next offsets under Lakefeed's own names, in streams that the table takes."""
    held = positions_of(transactions, pipeline.name, source)
    return taken(source_of(pipeline, source), table, held)


def held_positions(pipeline: Pipeline, source: str, table: Table, transactions: Mapping[str, int]) -> Offsets:
    """The next offsets of a table, whoever has written last."""
    held = own_positions(pipeline, source, table, transactions)
    if table.app_id is None:
        return held
    spec = source_of(pipeline, source)
    for number, at in ingest_positions(transactions, table.app_id).items():
        partition = spec.partition_of(_stream(spec, table), number)
        held[partition] = max(at, held.get(partition, at))
    return held


def ingest_transactions(
    pipeline: Pipeline, source: str, table: Table, last: Mapping[str, int]
) -> dict[str, int]:
    """The last offsets of partitions under the names of kafka-delta-ingest, where the table has an `app_id`.

    Without those that have read nothing: it would take -1 for the end of a partition.
    """
    if table.app_id is None:
        return {}
    spec = source_of(pipeline, source)
    return {
        ingest_id(table.app_id, spec.number_of(partition)): at for partition, at in last.items() if at >= 0
    }


def _stream(spec: Source, table: Table) -> str:
    """The one topic that a table with an `app_id` takes, as the file is checked for."""
    return next(name for name in spec.known_streams() or () if table.takes(name))
