"""Deletions in a table of changes: only the key of one must fit, whatever values its row had."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.change_columns import ChangeColumns
from lakefeed.engine.task.decoding import EventDecoder
from lakefeed.events import Events
from lakefeed.formats import Decoded
from lakefeed.rows import Mask


@dataclass(frozen=True)
class DeletionDecoder:
    """Decodes events with columns; a deletion that does not fit is decoded again with its key alone."""

    decoder: EventDecoder
    changes: ChangeColumns
    keys: tuple[str, ...]
    """The columns of the key that the file names, as events name them."""

    def decode(self, events: Events) -> Decoded:
        """Every event becomes a row or a refusal or is skipped, never two of them."""
        decoded = self.decoder.decode(events)
        columns, op = events.columns, self.changes.op
        if not decoded.refused or columns is None or op not in columns.schema.names:
            return decoded
        deletions = pa.array(self.changes.deletions, pa.string())
        deletes = pc.is_in(columns.column(op), value_set=deletions).to_numpy(zero_copy_only=False)
        misfits = np.zeros(len(deletes), np.bool_)
        misfits[[one.index for one in decoded.refused]] = True
        misfits &= deletes
        return self.decoder.decode(self._bare(events, misfits)) if misfits.any() else decoded

    def _bare(self, events: Events, which: Mask) -> Events:
        """The events, some of which have no values but those of their key."""
        assert events.columns is not None
        names = self.changes.names
        kept = {*self.keys, *(events.key_columns or ()), *events.former_keys, *names}
        bare = copy(events)
        bare.columns = _nulled(events.columns, which, kept)
        bare.unfit = {
            name: one if name in kept else replace(one, where=one.where & ~which)
            for name, one in events.unfit.items()
        }
        return bare


def _nulled(columns: pa.RecordBatch, which: Mask, kept: Collection[str]) -> pa.RecordBatch:
    mask = pa.array(which)
    for at, field in enumerate(columns.schema):
        if field.name not in kept:
            nulls = pa.scalar(None, field.type)
            columns = columns.set_column(at, field, pc.if_else(mask, nulls, columns.column(at)))
    return columns
