"""Changes: rows become changes of the rows of a table, each with what it does and where it came from.

A change without a key, or without what orders it, changes nothing that anybody could name: it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.change_columns import WHOLE_ROW, ChangeColumns
from lakefeed.columns.column_types import type_text
from lakefeed.columns.repeated import repeated
from lakefeed.columns.staged import DELETE, DELETIONS, MOVED, STAGED, TOMBSTONE, TRUNCATE, UPDATE, UPSERT
from lakefeed.errors import TableError
from lakefeed.events import Refused
from lakefeed.rows import Mask, Rows, StepResult
from lakefeed.rows.envelope import json_names, key_columns, opened, refuse_other_keys
from lakefeed.rows.unchanged import LISTS, lacking, mentions, unknown_value
from lakefeed.sql.expression import Expression

CODES = {
    "null_key": "a column of the key is null, so the change is about no row",
    "unknown_value": "the change does not carry a value that is needed, and nothing else has it",
    "null_sequence": "a column of `sequence_by`, or `time_by`, is null, so nothing says when the change was",
}


_NOT_WHOLE = (
    "changes do not have the whole row as it was, by which `keys: all` finds it in the table.\n"
    "ALTER TABLE ... REPLICA IDENTITY FULL, of each partition as well; then read the rows again with "
    "`lakefeed snapshot`."
)


@dataclass(frozen=True)
class ChangePlan:
    """How the rows of a table are changes. Picklable."""

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...] = ()
    required: pa.Schema | None = None
    """The columns that a row of the table must have; None where decoding has seen to that."""
    applies: bool = True
    """Whether they change rows; False where they are only looked at for whether they came before."""
    keeps_past: bool = False
    """Whether the table keeps every state of a row."""
    partition_columns: tuple[str, ...] = ()
    """Where the empty text is null, which a key must not be."""
    delete_when: Expression | None = None
    truncate_when: Expression | None = None
    envelopes: ChangeColumns | None = None
    """By which columns events say themselves what they do; None where they do not."""
    tombstones: bool = False
    """Whether an event without a payload deletes the row of its key."""
    undated: bool = False
    """Whether such an event may be without a sequence."""
    time_by: str | None = None
    """The column with the time of a change, where its table has the times of intervals."""
    key_names: Callable[[bytes], tuple[str, ...]] = json_names
    """The names of the columns in a key, where events bring them."""
    stream: str | None = None
    """The column that says which of several streams a row is of: it is part of the key."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """The columns that have other names in the table than in the events and their keys."""

    def with_stream(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """The columns of a key, with that of the stream where there are several streams."""
        return (self.stream, *keys) if self.stream and keys and self.stream not in keys else keys

    @property
    def judges(self) -> bool:
        """Whether conditions, or the events, say what an event does."""
        return bool(self.delete_when or self.truncate_when or self.envelopes or self.tombstones)

    def decoded(self, columns: pa.Schema) -> pa.Schema:
        """The columns of events, nullable where only a change can tell whether null is wrong."""
        judged = self.keys if self.required is None else columns.names
        return pa.schema([one.with_nullable(one.nullable or one.name in judged) for one in columns])


class FindDeletions:
    """Finds by conditions over the columns of the events what each of them does."""

    def __init__(self, plan: ChangePlan) -> None:
        given = (("delete_when", plan.delete_when, DELETE), ("truncate_when", plan.truncate_when, TRUNCATE))
        self._conditions = [(condition, op) for _, condition, op in given if condition is not None]
        self._options = [(option, condition) for option, condition, _ in given if condition is not None]
        self._envelopes, self._tombstones = plan.envelopes, plan.tombstones

    def __call__(self, rows: Rows) -> StepResult:
        """The rows, with their ops; those for which Spark would throw are refused."""
        # On a worker only: whoever plans such a step does not need all functions of SQL.
        from lakefeed.rows.select import refused
        from lakefeed.sql.evaluation import evaluate_rows

        if self._envelopes:
            rows = opened(rows, self._envelopes)
        arrays, errors = evaluate_rows([condition for condition, _ in self._conditions], rows.batch)
        for option, condition in self._options:
            for at in np.flatnonzero(lacking(rows.unchanged, condition.columns())).tolist():
                errors.setdefault(at, unknown_value(f"`{option}`", rows, at, condition.columns()))
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
        ops = np.where(ops == UPDATE, UPSERT, ops).astype(np.int8)
        reasons: dict[int, tuple[str, str, str]] = {}
        required = [] if plan.required is None else plan.required.names
        for name in required:
            # What a change says nothing about, the row of the table has. Of a row that is its own key, a
            # deletion of what was refused is refused as well.
            needed = ops != TRUNCATE if plan.keys == WHOLE_ROW else (ops == UPSERT) | (ops == MOVED)
            asked = needed & ~_silent(rows, name)
            _note(reasons, batch, [name], asked, "schema", "missing_value")
        ops = self._dated(batch, ops)
        ordered_by = (*plan.sequence_by, *([plan.time_by] if plan.time_by else ()))
        _note(reasons, batch, ordered_by, ops != TOMBSTONE, "write", "null_sequence")
        keyed = ops != TRUNCATE
        keys = plan.keys or self._brought_keys(rows, keyed)
        if plan.stream in batch.schema.names:
            keys = plan.with_stream(keys)
        elif plan.stream:
            raise TableError(
                f"a table that takes several streams needs the column {plan.stream}, which tells their rows "
                "apart: keep it in what `python` returns, or name one stream in `streams`."
            )
        _refuse_other_columns(batch, keys)
        if plan.keys and plan.keys != WHOLE_ROW and plan.envelopes is not None and keyed.any():
            own_keys = [name for name in plan.keys if name != plan.stream]
            refuse_other_keys(rows, own_keys, plan.rename)
        former = tuple(plan.rename.get(name, name) for name in rows.events.former_keys)
        former = plan.with_stream(former)
        if keys == WHOLE_ROW or not set(former) <= set(batch.schema.names):
            former = ()
        own = former or keys
        if keys == WHOLE_ROW and batch.column(keys[0]).filter(pa.array(keyed)).null_count:
            raise TableError(_NOT_WHOLE)
        _note(reasons, self._with_empty_as_null(batch, own), own, keyed, "write", "null_key")
        changes = rows.of(self._staged(rows, ops, keys, former))
        if not reasons:
            return StepResult(changes)
        refused = [Refused(rows.indexes[at], *reasons[at]) for at in sorted(reasons)]
        return StepResult(changes.without(list(reasons)), refused)

    def _brought_keys(self, rows: Rows, keyed: Mask) -> tuple[str, ...]:
        """The key columns that the events bring, as the table calls them.

        A truncation is of no key, and rows that were all refused before have none either: of these only the
        source may know the columns.
        """
        plan = self._plan
        if keyed.any():
            names = key_columns(rows.where(keyed), plan.key_names)
        else:
            names = rows.events.key_columns or ()
        found = tuple(plan.rename.get(name, name) for name in names)
        return found if keyed.any() or set(found) <= set(rows.batch.schema.names) else ()

    def _dated(self, batch: pa.RecordBatch, ops: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
        """A deletion that has its sequence, or needs none, is one as any other."""
        undated = np.zeros(len(ops), np.bool_)
        for name in self._plan.sequence_by if self._plan.undated else ():
            undated |= batch.column(name).is_null().to_numpy(zero_copy_only=False)
        return np.where((ops == TOMBSTONE) & ~undated, DELETE, ops).astype(np.int8)

    def _with_empty_as_null(self, batch: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
        for name in (name for name in keys if name in self._plan.partition_columns):
            at = batch.schema.get_field_index(name)
            column = batch.column(at)
            if pa.types.is_string(column.type):
                empty = pc.equal(column, "")
                batch = batch.set_column(at, name, pc.if_else(empty, pa.scalar(None, column.type), column))
        return batch

    def _staged(
        self, rows: Rows, ops: npt.NDArray[np.int8], keys: Sequence[str], former: Sequence[str]
    ) -> pa.RecordBatch:
        origin, plan = rows.origin(), self._plan
        unchanged = pa.nulls(len(ops), LISTS)
        if rows.unchanged is not None:
            deletes = pa.array(np.isin(ops, DELETIONS))
            unchanged = pc.if_else(deletes, pa.scalar(None, LISTS), rows.unchanged)
        names = pa.nulls(len(ops), LISTS)
        if not plan.keys and keys and not former:
            names = repeated(pa.scalar(list(keys), LISTS), len(ops))
        own = [pa.array(ops, pa.int8()), rows.partitions(), origin.column("offset")]
        own += [origin.column("partition").cast(pa.int64()), unchanged, names, origin.column("timestamp")]
        own.append(repeated(pa.scalar(list(former) or None, LISTS), len(ops)))
        schema = pa.schema([*rows.batch.schema, *STAGED])
        return pa.RecordBatch.from_arrays([*rows.batch.columns, *own], schema=schema)


def _silent(rows: Rows, name: str) -> Mask:
    """Which rows say nothing about a column."""
    if rows.unchanged is None:
        return np.zeros(len(rows.indexes), np.bool_)
    return mentions(rows.unchanged, name)


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
