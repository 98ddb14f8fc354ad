"""History: every state of a row is in the table, each with the interval of the sequence in which it held.

Intervals are half open, `[valid_from, valid_to)`, and an open one has no end. Changes may come late: the
table is what it would be if all of them had come in order. See `lakefeed.tables.write.intervals.points`.
"""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.columns.staged import OP, UPSERT
from lakefeed.errors import TableError
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.intervals.decision import decide
from lakefeed.tables.write.keyed import HistoryRules
from lakefeed.tables.write.keyed.decision import Decision
from lakefeed.tables.write.keyed.fold import ops
from lakefeed.tables.write.keyed.layout import Layout
from lakefeed.tables.write.keyed.moved import with_values_before_moves
from lakefeed.tables.write.keyed.staged import read_staged
from lakefeed.tables.write.keyed.tombstones import TOLD, Tombstones
from lakefeed.tables.write.keyed.tombstones.event_times import oldest_events
from lakefeed.tables.write.mode import Change
from lakefeed.tables.write.upsert import Targets, UpsertMode

_log = logging.getLogger("lakefeed")
_MOST_REMEMBERED = 64 * 2**20
"""Bytes of changes that share an interval with others, in the memory of the driver."""


class _Memory(Tombstones):
    """Deletions, and changes that share an interval with others, with all that they said."""

    def schema(self, table: LakeTable) -> pa.Schema:
        """The columns that changes bring, what each does, and what is told of every tombstone."""
        assert isinstance(self._rules, HistoryRules)
        own = [field.with_nullable(True) for field in self._rules.body(table.schema)]
        return pa.schema([*own, pa.field(OP, pa.int8()), *TOLD])

    def _worth_keeping(self, every: pa.Table) -> pa.Table:
        """Not more changes than there is memory for, the oldest first; every deletion.

        A key that is told again and again to be as it was has one more each time, for two days by default.
        """
        folded = np.flatnonzero(ops(every) == UPSERT)
        too_many = int(len(folded) * (1 - _MOST_REMEMBERED / max(every.nbytes, 1)))
        if too_many <= 0:
            return every
        _log.debug("%d changes that share an interval with others are forgotten", too_many)
        keep = np.ones(every.num_rows, np.bool_)
        keep[folded[:too_many]] = False
        return every.filter(pa.array(keep))


class HistoryMode(UpsertMode):
    """Puts changes into the history of their key. One object for one table and process."""

    kind = "history"
    _memory = _Memory

    def __init__(
        self, pipeline: str, rules: HistoryRules, targets: Targets, layout: Layout, tombstones: float
    ) -> None:
        super().__init__(pipeline, rules, targets, layout, tombstones)
        self._rules: HistoryRules = rules
        self._staged: tuple[str, pa.Table] | None = None

    def check(self, shape: Shape, path: str) -> None:
        """Raise TableError for a table that cannot have such intervals."""
        super().check(shape, path)
        rules, schema = self._rules, shape.schema
        wanted = dict.fromkeys((rules.valid_from, rules.valid_to), rules.moment_type(schema))
        if rules.is_current:
            wanted[rules.is_current] = pa.bool_()
        for name, kind in wanted.items():
            at = schema.get_field_index(name)
            if at < 0 or schema.field(at).type != kind:
                found = "there is none" if at < 0 else f"it is {type_text(schema.field(at).type)}"
                raise TableError(
                    f"{path}: `mode: history` needs the column {name} of type {type_text(kind)}, and "
                    f"{found}.\n"
                    "Choose another path, for a table that Lakefeed makes, or other names with `valid_from` "
                    "and `valid_to`."
                )

    @property
    def _identity(self) -> tuple[str, ...]:
        return (*self._rules.keys, self._rules.valid_from)

    def _decide(self, table: LakeTable, change: Change) -> Decision:
        if self._staged is None or self._staged[0] != change.token:
            self._staged = change.token, read_staged(table, change.files)
            self._oldest = oldest_events(self._staged[1], change.commit_info.get("source"))
        remembered = self._tombstones.load(table, self._oldest)
        changes, replayed = with_values_before_moves(table, self._staged[1], self._rules), change.replayed
        spread, hold = self.spread, self._layout.copies
        return decide(table, changes, self._rules, remembered, replayed=replayed, spread=spread, hold=hold)

    def landed(self, entry: object) -> None:
        """The changes are of no use any more."""
        self._staged = None
