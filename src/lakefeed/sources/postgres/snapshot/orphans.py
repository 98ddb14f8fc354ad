"""Rows that move into a part of a table that was copied, out of one that was not: only the server knows them.

Such a change says nothing about large values that it left alone, and nothing that was read has them: the row
was not copied under its old key, and is not copied under its new one. It is asked for as it is now; what has
changed since comes with a change of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.current_rows import with_current_values
from lakefeed.sources.postgres.replication.pgoutput import DELETE, INSERT, Changes, Mask


def completed(connection: Connection, changes: Changes, kept: Mask, keys: Sequence[str]) -> Changes:
    """The changes, where what is kept of a row that has moved knows all its columns."""
    if not kept.any() or not any(mask.any() for mask in changes.unchanged):
        return changes
    silent = np.logical_or.reduce(changes.unchanged)
    # The deletion under the old key lies right before.
    has_half = np.zeros(len(kept), np.bool_)
    has_half[1:] = (
        kept[:-1] & (changes.ops[:-1] == DELETE) & (changes.ordinals[:-1] + 1 == changes.ordinals[1:])
    )
    orphans = np.flatnonzero(kept & (changes.ops == INSERT) & silent & ~has_half)
    if not len(orphans):
        return changes
    chosen = np.zeros(len(kept), np.bool_)
    chosen[orphans] = True
    return with_current_values(connection, changes, chosen, keys).changes
