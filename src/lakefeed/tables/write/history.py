"""History: every state of a row is in the table, each with the interval of the sequence in which it held.

Intervals are half open, `[valid_from, valid_to)`, and an open one has no end. Changes may come late: the
table is what it would be if all of them had come in order. See `lakefeed.tables.write.intervals.points`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.columns.staged import OP, UPSERT
from lakefeed.errors import TableError
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.intervals.decision import decide
from lakefeed.tables.write.intervals.known import KeyRange
from lakefeed.tables.write.keyed import HistoryRules
from lakefeed.tables.write.keyed.decision import Decision
from lakefeed.tables.write.keyed.fold import ops
from lakefeed.tables.write.keyed.keys import Mask, Numbers
from lakefeed.tables.write.keyed.layout import Layout
from lakefeed.tables.write.keyed.moved import with_values_before_moves
from lakefeed.tables.write.keyed.ranged import SplitBatch
from lakefeed.tables.write.keyed.tombstones import TOLD, Tombstones
from lakefeed.tables.write.keyed.tombstones.segments import Retype
from lakefeed.tables.write.mode import Change
from lakefeed.tables.write.upsert import Targets, UpsertMode

_MOST_REMEMBERED = 64 * 2**20
"""Bytes of changes that share an interval with others."""


class _Memory(Tombstones):
    """Deletions, and changes that share an interval with others, with all that they said."""

    most_optional = _MOST_REMEMBERED

    def schema(self, table: LakeTable) -> pa.Schema:
        """The columns that changes bring, what each does, and what is told of every tombstone."""
        assert isinstance(self._rules, HistoryRules)
        own = [field.with_nullable(True) for field in self._rules.body(table.schema)]
        return pa.schema([*own, pa.field(OP, pa.int8()), *TOLD])

    def _apart(self, rows: pa.Table, sequence: Numbers) -> Numbers | None:
        """Every change has its own time."""
        return sequence

    def optional(self, rows: pa.Table) -> Mask:
        """Changes that share an interval with others; every deletion must stay.

        A key that is told again and again to be as it was has one more each time, for two days by default.
        """
        found: Mask = np.equal(ops(rows), UPSERT)
        return found


class HistoryMode(UpsertMode):
    """Puts changes into the history of their key. One object for one table and process."""

    kind = "history"
    _memory = _Memory
    _undoes = False

    def __init__(
        self,
        pipeline: str,
        rules: HistoryRules,
        targets: Targets,
        layout: Layout,
        tombstones: float,
        retype: Retype,
    ) -> None:
        super().__init__(pipeline, rules, targets, layout, tombstones, retype)
        self._rules: HistoryRules = rules

    def check(self, shape: Shape, path: str) -> None:
        """Raise TableError for a table that cannot have such intervals."""
        super().check(shape, path)
        rules, schema = self._rules, shape.schema
        if rules.time_by and rules.time_by not in schema.names:
            raise TableError(
                f"{path}: `time_by` names the column {rules.time_by}, and the table has none of this name."
            )
        for name, kind in rules.interval_types(schema).items():
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

    def _range_deciders(
        self, table: LakeTable, batch: SplitBatch, change: Change
    ) -> list[Callable[[], Decision]]:
        def decide_range(number: int) -> Decision:
            assert self._remembered is not None
            changes = pa.concat_tables([batch.truncations, batch.changes.rows(number)]).combine_chunks()
            within = KeyRange(lambda keys: np.equal(batch.ranges.of(keys), number), number == 0)
            return decide(
                table, changes, self._rules, self._remembered,
                replayed=change.replayed, spread=self.spread, within=within,
            )  # fmt: skip

        return [partial(decide_range, number) for number in range(len(batch.ranges))]

    def _decide(self, table: LakeTable, change: Change) -> Decision:
        # Read again for another try, rather than held while files are written.
        staged = self._with_stream_truncations(table, self._read(table, change), change)
        remembered = self._remembered = self._tombstones.load(table, self._oldest)
        changes, replayed = with_values_before_moves(table, staged, self._rules), change.replayed
        spread, hold = self.spread, self._layout.copies
        return decide(table, changes, self._rules, remembered, replayed=replayed, spread=spread, hold=hold)
