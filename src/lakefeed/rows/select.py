"""`where` and `select`: rows are left out, and columns are made of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import type_text
from lakefeed.columns.staged import DELETE, DELETIONS, UPDATE
from lakefeed.events import Refused
from lakefeed.rows import Mask, Rows, StepResult
from lakefeed.rows.conform import conformed
from lakefeed.rows.evaluator import Evaluate
from lakefeed.rows.unchanged import lacking, mentions, translated, unknown_value
from lakefeed.sql.arrow.value import Errors
from lakefeed.sql.expression import Call, Expression
from lakefeed.sql.projection import Projection

STAGE = "select"


class Where:
    """Leaves out rows that do not meet a condition; null is not met.

    What a change does not carry is not null but unknown. A row is left out for parts of the condition that
    are not met by what it carries. Otherwise, where other parts read what it does not carry, a deletion
    counts, as the row that it is about may be in the table, a row of a log is kept, and an upsert of a keyed
    table is refused.

    An update of a row that does not meet the condition any more becomes a deletion.
    """

    def __init__(self, projection: Projection, evaluate: Evaluate, *, keyed: bool) -> None:
        assert projection.where is not None
        self._where = projection.where
        # Spark evaluates the condition as a whole.
        self._parts = [self._where] if projection.needs_spark else list(_conjuncts(self._where))
        self._evaluate, self._keyed = evaluate, keyed

    def __call__(self, rows: Rows) -> StepResult:
        """The rows that meet it, those that do not, and those for which it throws or is not known."""
        (met,), thrown = self._evaluate([self._where], rows)
        mask = np.array(pc.fill_null(met, False).to_numpy(zero_copy_only=False))
        none = np.zeros(len(mask), np.bool_)
        ops = np.zeros(len(mask), np.int8) if rows.ops is None else rows.ops.to_numpy()
        deletes = np.isin(ops, DELETIONS)
        unknown = self._unknown(rows) if rows.unchanged is not None else none
        if thrown:
            # A deletion for which it throws counts: the row must not stay for good.
            unknown |= deletes & np.isin(np.arange(len(mask)), list(thrown))
            thrown = {at: error for at, error in thrown.items() if not unknown[at]}
        refuses = unknown & ~deletes if self._keyed else none
        for at in np.flatnonzero(refuses).tolist():
            thrown[at] = unknown_value("`where`", rows, at, self._where.columns())
        mask = (mask & ~self._lacks(rows)) | unknown
        leaves = (ops == UPDATE) & ~mask if self._keyed else none
        gone = ~mask & ~leaves
        mask |= leaves
        if thrown:
            mask[list(thrown)] = gone[list(thrown)] = leaves[list(thrown)] = False
        if leaves.any():
            rows = rows.with_ops(pa.array(np.where(leaves, DELETE, ops).astype(np.int8)))
        if mask.all():
            return StepResult(rows)
        return StepResult(rows.where(mask), refused(rows, thrown), rows.indexes_at(gone))

    def _lacks(self, rows: Rows) -> Mask:
        """Which rows do not carry all that the condition reads."""
        if rows.unchanged is None:
            return np.zeros(rows.batch.num_rows, np.bool_)
        return lacking(rows.unchanged, self._where.columns())

    def _unknown(self, rows: Rows) -> Mask:
        """Which rows do not carry all that the condition reads, and meet what they do carry."""
        unknown = self._lacks(rows)
        at = np.flatnonzero(unknown)
        if not len(at):
            return unknown
        some = rows.where(unknown)
        for part in self._parts:
            (met,), thrown = self._evaluate([part], some)
            carried = ~lacking(some.unchanged, part.columns())
            broken = carried & ~pc.fill_null(met, False).to_numpy(zero_copy_only=False)
            broken[list(thrown)] = False
            unknown[at[broken]] = False
        return unknown


def _conjuncts(condition: Expression) -> Iterator[Expression]:
    """The parts of a condition that must all be met."""
    if isinstance(condition, Call) and condition.function == "And":
        for part in condition.given:
            yield from _conjuncts(part)
    else:
        yield condition


class Select:
    """Makes the columns of the table.

    An item that reads what a change does not carry is not known either. In a log it is null. In a keyed table
    it is as it was, unless it reads something else as well, which may have changed: then the change is
    refused.
    """

    def __init__(
        self, projection: Projection, table: pa.Schema, evaluate: Evaluate, *, keyed: bool = False
    ) -> None:
        """`table` are the columns that the table has, but for those that are derived behind this."""
        self._expressions = [item.expression for item in projection.items]
        self._names = [item.name for item in projection.items]
        self._reads = {item.name: item.expression.columns() for item in projection.items}
        self._evaluate, self._keyed = evaluate, keyed
        self._table = table
        self._needed = [one for one in table if not one.nullable]

    def __call__(self, rows: Rows) -> StepResult:
        """The same rows with the columns of the table, but those for which an item throws."""
        made, thrown = self._evaluate(self._expressions, rows)
        if thrown and rows.ops is not None:
            made, thrown = self._with_deletions(rows, made, thrown)
        if rows.unchanged is not None:
            made = self._with_unknown(rows, made, thrown)
        batch = conformed(pa.RecordBatch.from_arrays(made, names=self._names), self._table)
        for one in self._needed:
            column = batch.column(one.name)
            if column.null_count:
                text = f"{one.name}: expected {type_text(one.type)} not null, got null"
                for at in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                    thrown.setdefault(at, ("missing_value", text))
        done = self._with_silences(rows.of(batch))
        return StepResult(done.without(list(thrown)), refused(rows, thrown)) if thrown else StepResult(done)

    def _with_deletions(
        self, rows: Rows, made: Sequence[pa.Array], thrown: Errors
    ) -> tuple[list[pa.Array], Errors]:
        """A deletion needs only its key: an item that throws for it is null."""
        assert rows.ops is not None
        deletes = np.isin(rows.ops, DELETIONS)
        columns = list(made)
        if not deletes[list(thrown)].any():
            return columns, thrown
        for at, expression in enumerate(self._expressions):
            _, errors = self._evaluate([expression], rows)
            nulls = deletes & np.isin(np.arange(len(deletes)), list(errors))
            columns[at] = pc.if_else(pa.array(nulls), pa.scalar(None, columns[at].type), columns[at])
        return columns, {at: error for at, error in thrown.items() if not deletes[at]}

    def _with_unknown(self, rows: Rows, made: Sequence[pa.Array], thrown: Errors) -> list[pa.Array]:
        """Items that read what a change does not carry are null; keyed ones that read more are refused."""
        columns, lists = list(made), rows.unchanged
        upserts = np.ones(rows.batch.num_rows, np.bool_)
        if rows.ops is not None:
            upserts = ~np.isin(rows.ops, DELETIONS)
        for index, (name, reads) in enumerate(self._reads.items()):
            unknown = lacking(lists, reads) & upserts
            if not unknown.any():
                continue
            if self._keyed and len(reads) > 1:
                whole = np.logical_and.reduce([mentions(lists, one) for one in reads])
                for at in np.flatnonzero(unknown & ~whole).tolist():
                    thrown.setdefault(at, unknown_value(f"`select: {name}`", rows, at, reads))
            nothing = pa.scalar(None, columns[index].type)
            columns[index] = pc.if_else(pa.array(unknown), nothing, columns[index])
        return columns

    def _with_silences(self, rows: Rows) -> Rows:
        """A change says nothing of a column that is made of one which it says nothing of."""
        if rows.unchanged is None:
            return rows
        lists = translated(rows.unchanged, self._made_of)
        return replace(rows, unchanged=lists)

    def _made_of(self, name: str) -> list[str]:
        return [one for one, reads in self._reads.items() if name in reads]


def refused(rows: Rows, thrown: Errors) -> list[Refused]:
    """The events of rows for which Spark would have thrown, with its words."""
    return [Refused(int(rows.indexes[at]), STAGE, code, text) for at, (code, text) in sorted(thrown.items())]
