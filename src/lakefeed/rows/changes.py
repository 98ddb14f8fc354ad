"""Changes: rows become changes of the rows of a table, each with what it does and where it came from.

A change without a key, or without what orders it, changes nothing that anybody could name: it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.change_columns import ChangeColumns
from lakefeed.columns.column_types import type_text
from lakefeed.columns.staged import DELETE, MOVED, STAGED, TOMBSTONE, TRUNCATE, UPSERT
from lakefeed.errors import TableError
from lakefeed.events import Refused
from lakefeed.rows import Mask, Rows, StepResult
from lakefeed.rows.envelope import json_names, key_columns, opened, refuse_other_keys
from lakefeed.sql.expression import Expression

CODES = {
    "null_key": "a column of the key is null, so the change is about no row",
    "null_sequence": "a column of `sequence_by` is null, so nothing tells whether the change is newer",
}


@dataclass(frozen=True)
class ChangePlan:
    """How the rows of a table are changes. Picklable."""

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...] = ()
    required: pa.Schema | None = None
    """The columns that a row of the table must have; None where decoding has seen to that."""
    partition_keys: tuple[str, ...] = ()
    """Keys that are partition columns, where the empty text is null."""
    delete_when: Expression | None = None
    truncate_when: Expression | None = None
    envelopes: ChangeColumns | None = None
    """By which columns events say themselves what they do; None where they do not."""
    tombstones: bool = False
    """Whether an event without a payload deletes the row of its key."""
    undated: bool = False
    """Whether such an event may be without a sequence."""
    key_names: Callable[[bytes], tuple[str, ...]] = json_names
    """The names of the columns in a key, where events bring them."""

    @property
    def judges(self) -> bool:
        """Whether conditions, or the events, say what an event does."""
        return bool(self.delete_when or self.truncate_when or self.envelopes or self.tombstones)

    def decoded(self, columns: pa.Schema) -> pa.Schema:
        """The columns of events, nullable where only a change can tell whether null is wrong."""
        judged = self.keys if self.required is None else columns.names
        return pa.schema([field.with_nullable(field.nullable or field.name in judged) for field in columns])


class FindDeletions:
    """Finds by conditions over the columns of the events what each of them does."""

    def __init__(self, plan: ChangePlan) -> None:
        given = ((plan.delete_when, DELETE), (plan.truncate_when, TRUNCATE))
        self._conditions = [(condition, op) for condition, op in given if condition is not None]
        self._envelopes, self._tombstones = plan.envelopes, plan.tombstones

    def __call__(self, rows: Rows) -> StepResult:
        """The rows, with their ops; those for which Spark would throw are refused."""
        # On a worker only: whoever plans such a step does not need all functions of SQL.
        from lakefeed.rows.select import refused
        from lakefeed.sql.evaluation import evaluate_rows

        if self._envelopes:
            rows = opened(rows, self._envelopes)
        arrays, errors = evaluate_rows([condition for condition, _ in self._conditions], rows.batch)
        ops = np.full(len(rows.indexes), UPSERT, np.int8) if rows.ops is None else rows.ops.to_numpy().copy()
        for found, (_, op) in zip(arrays, self._conditions, strict=True):
            ops[pc.fill_null(found, False).to_numpy(zero_copy_only=False)] = op
        payloads = rows.events.payloads
        if self._tombstones and None in payloads:
            # Of an event without a payload, a row can only be made by its key.
            ops[np.array([payloads[int(at)] is None for at in rows.indexes], np.bool_)] = TOMBSTONE
        marked = rows.with_ops(pa.array(ops))
        if not errors:
            return StepResult(marked)
        return StepResult(marked.without(list(errors)), refused(rows, errors))


class MakeChanges:
    """Adds what a staged change has besides the columns of the table."""

    def __init__(self, plan: ChangePlan) -> None:
        self._plan = plan

    def __call__(self, rows: Rows) -> StepResult:
        """The changes, and why others are none."""
        plan, batch = self._plan, rows.batch
        ops = np.zeros(batch.num_rows, np.int8) if rows.ops is None else rows.ops.to_numpy()
        reasons: dict[int, tuple[str, str, str]] = {}
        required = [] if plan.required is None else plan.required.names
        for name in required:
            # What a change says nothing about, the row of the table has.
            asked = ((ops == UPSERT) | (ops == MOVED)) & ~_silent(rows, name)
            _note(reasons, batch, [name], asked, "schema", "missing_value")
        ops = self._dated(batch, ops)
        _note(reasons, batch, plan.sequence_by, ops != TOMBSTONE, "write", "null_sequence")
        keyed = ops != TRUNCATE
        # A truncation is of no key, and rows that were all refused before have none either.
        keys = plan.keys or (key_columns(rows.where(keyed), plan.key_names) if keyed.any() else ())
        _refuse_other_columns(batch, keys)
        if plan.keys and plan.envelopes is not None and keyed.any():
            refuse_other_keys(rows, plan.keys)
        _note(reasons, self._with_empty_as_null(batch), keys, keyed, "write", "null_key")
        changes = rows.of(self._staged(rows, ops, keys))
        if not reasons:
            return StepResult(changes)
        refused = [Refused(rows.indexes[at], *reasons[at]) for at in sorted(reasons)]
        return StepResult(changes.without(list(reasons)), refused)

    def _dated(self, batch: pa.RecordBatch, ops: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
        """A deletion that has its sequence, or needs none, is one as any other."""
        undated = np.zeros(len(ops), np.bool_)
        for name in self._plan.sequence_by if self._plan.undated else ():
            undated |= batch.column(name).is_null().to_numpy(zero_copy_only=False)
        return np.where((ops == TOMBSTONE) & ~undated, DELETE, ops).astype(np.int8)

    def _with_empty_as_null(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name in self._plan.partition_keys:
            at = batch.schema.get_field_index(name)
            column = batch.column(at)
            if pa.types.is_string(column.type):
                empty = pc.equal(column, "")
                batch = batch.set_column(at, name, pc.if_else(empty, pa.scalar(None, column.type), column))
        return batch

    def _staged(self, rows: Rows, ops: npt.NDArray[np.int8], keys: Sequence[str]) -> pa.RecordBatch:
        origin, plan = rows.origin(), self._plan
        stream = origin.column("stream").fill_null("")
        partition = pc.binary_join_element_wise(stream, origin.column("partition").cast(pa.string()), "-")
        unchanged = rows.unchanged
        if unchanged is None:
            unchanged = pa.nulls(len(ops), pa.list_(pa.string()))
        names = pa.nulls(len(ops), pa.list_(pa.string()))
        if not plan.keys and keys:
            names = pa.repeat(pa.scalar(list(keys), pa.list_(pa.string())), len(ops))
        own = [pa.array(ops, pa.int8()), partition, origin.column("offset"), unchanged, names]
        own += [origin.column("timestamp"), _clocks(rows, partition)]
        schema = pa.schema([*rows.batch.schema, *STAGED])
        return pa.RecordBatch.from_arrays([*rows.batch.columns, *own], schema=schema)


def _clocks(rows: Rows, partition: pa.Array) -> pa.Array:
    """The partition of each row. Events that are all of one may be numbered in it by something else."""
    names = list(rows.events.counts())
    return pa.repeat(pa.scalar(names[0], pa.string()), len(partition)) if len(names) == 1 else partition


def _silent(rows: Rows, name: str) -> Mask:
    """Which rows say nothing about a column."""
    found = np.zeros(len(rows.indexes), np.bool_)
    if rows.unchanged is not None:
        parents = pc.list_parent_indices(rows.unchanged).to_numpy(zero_copy_only=False)
        found[parents[pc.equal(rows.unchanged.flatten(), name).to_numpy(zero_copy_only=False)]] = True
    return found


def _refuse_other_columns(batch: pa.RecordBatch, keys: Sequence[str]) -> None:
    """Raise TableError where the key that events bring has columns that the table does not have."""
    missing = next((name for name in keys if name not in batch.schema.names), None)
    if missing is not None:
        raise TableError(
            f"the key of the events has the column {missing}, and the table has none of this name.\n"
            "Name the columns of the key with `keys`, as the table calls them."
        )


def _note(
    reasons: dict[int, tuple[str, str, str]],
    batch: pa.RecordBatch,
    names: Sequence[str],
    asked: Mask,
    stage: str,
    code: str,
) -> None:
    """Note every row that has a null in one of the columns."""
    for name in names:
        column = batch.column(name)
        if not column.null_count:
            continue
        kind = type_text(batch.schema.field(name).type)
        for at in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False) & asked).tolist():
            reasons[at] = stage, code, f"{name}: expected {kind} not null, got null"
