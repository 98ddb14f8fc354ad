"""Rows that are their own key: a hash of all values, and by how many a change makes such rows more or fewer.

Equal rows of a table without a key are counted: nothing else tells them apart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.change_columns import ROW_COUNT, WHOLE_ROW
from lakefeed.sources.postgres.events import PostgresEvents
from lakefeed.sources.postgres.replication.pgoutput import Mask, Numbers, Relation

_BYTES = 16
_BETWEEN = "\x1f"


def with_whole_rows(
    events: PostgresEvents, relation: Relation, texts: Sequence[pa.Array], counts: Numbers, known: Mask
) -> PostgresEvents:
    """The events with a hash of their row, and by how many they make such rows more or fewer.

    `texts` are the values as the server writes them, by column of the relation; `known` says which events
    have all of them, as the others have no hash.
    """
    columns = events.columns
    assert columns is not None
    taken = {*WHOLE_ROW, ROW_COUNT}.intersection(columns.schema.names)
    if taken:
        events.problem = events.problem or (
            f"{events.stream} has a column {min(taken)} of its own, and `keys: all` adds one of this name.\n"
            "Rename it in the database, or remove `keys`."
        )
        columns = columns.drop_columns(sorted(taken))
    hashes = pc.if_else(pa.array(known), _hashes(relation, texts, len(columns)), pa.scalar(None, pa.string()))
    columns = columns.append_column(WHOLE_ROW[0], hashes)
    events.columns = columns.append_column(ROW_COUNT, pa.array(counts, pa.int64()))
    return events


def _hashes(relation: Relation, texts: Sequence[pa.Array], count: int) -> pa.Array:
    """Of the names and values of the columns that are not null: a column that is added may change no row."""
    pairs = sorted(zip((field.name for field in relation.fields), texts, strict=True), key=lambda one: one[0])
    parts = [pa.repeat(pa.scalar(relation.stream), count)]
    for name, values in pairs:
        lengths = pc.binary_length(values).cast(pa.string())
        told = pc.binary_join_element_wise(json.dumps(name), lengths, values, _BETWEEN)
        parts.append(pc.fill_null(told, ""))
    joined = pc.binary_join_element_wise(*parts, "")
    hashes = (blake2b(one.encode(), digest_size=_BYTES).hexdigest() for one in joined.to_pylist())
    return pa.array(hashes, pa.string(), size=count)
