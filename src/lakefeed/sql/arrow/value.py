"""What an expression gives for a batch of rows: values, and the rows for which Spark throws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.repeated import repeated
from lakefeed.sql.expression import Call

Error: TypeAlias = tuple[str, str]
"""Spark's error class and its sentence."""

Errors: TypeAlias = dict[int, Error]
"""Errors by the number of the row."""

Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


@dataclass(frozen=True)
class Value:
    """A column of values, or a scalar for a constant; what stands in rows with an error does not matter."""

    data: Any
    errors: Errors = field(default_factory=dict)

    @property
    def constant(self) -> bool:
        """Whether it is a scalar."""
        return isinstance(self.data, pa.Scalar)

    def column(self, rows: int) -> pa.Array:
        """The values as a column."""
        return repeated(self.data, rows) if self.constant else self.data

    def given(self, rows: int) -> Flags:
        """Which rows are not null."""
        return flags(pc.is_valid(self.column(rows)))


Kernel: TypeAlias = Callable[[Call, Sequence[Value], int], Value]
"""Computes a call from the values of its arguments for a number of rows."""


def _nothing(_: Call) -> str | None:
    return None


@dataclass(frozen=True)
class Function:
    """One of Spark's functions as Arrow computes it."""

    names: str
    """What people write, for the list of functions in the documentation."""

    kernel: Kernel
    limits: Callable[[Call], str | None] = _nothing
    """Which uses of it Arrow does not have, in a few words; None where it has this one."""

    note: str = ""
    """The uses that it has, for the documentation; empty for all."""


def flags(condition: Any) -> Flags:
    """A column of conditions as flags; null is no."""
    filled = pc.fill_null(condition, False)
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=bool)


def kept(errors: Errors, where: Flags) -> Errors:
    """The errors of those rows for which the expression is evaluated at all."""
    return {row: error for row, error in errors.items() if where[row]}


def first_errors(values: Iterable[Value]) -> Errors:
    """The errors of arguments that are all evaluated; of a row with several, that of the first."""
    errors: Errors = {}
    for value in values:
        errors = {**value.errors, **errors}
    return errors


def strict_errors(values: Sequence[Value], rows: int) -> Errors:
    """The errors of arguments that are evaluated one after the other until one is null."""
    errors: Errors = {}
    for index, value in enumerate(values):
        if not value.errors:
            continue
        found = value.errors
        for earlier in values[:index]:
            found = kept(found, earlier.given(rows))
        errors = {**found, **errors}
    return errors


def failing(data: pa.Array, failed: Flags, errors: Errors, reason: Callable[[int], Error]) -> Value:
    """Values of which some rows have failed; earlier errors of a row come first."""
    at: Iterable[int] = np.flatnonzero(failed).tolist()
    nulled = pc.if_else(pa.array(failed), pa.scalar(None, data.type), data)
    return Value(nulled, {**{row: reason(row) for row in at}, **errors})


def numbers(column: pa.Array, kind: pa.DataType) -> Any:
    """A column as numbers that numpy computes with; what is null counts as zero."""
    return column.cast(kind, safe=False).fill_null(0).to_numpy(zero_copy_only=False)


def typed(data: Any, kind: pa.DataType) -> Any:
    """A column or a scalar in a type, which it mostly has already."""
    return data if data.type == kind else data.cast(kind)


def of_one(compute: Callable[[Any], Any]) -> Kernel:
    """The kernel of a function of one argument that never throws."""
    return lambda _, values, rows: Value(compute(values[0].data), values[0].errors)


def of_two(compute: Callable[[Any, Any], Any]) -> Kernel:
    """The kernel of a function of two arguments that never throws, and is null where one of them is."""
    return lambda _, values, rows: Value(compute(values[0].data, values[1].data), strict_errors(values, rows))


def column_of(values: Any, valid: Flags, plain: pa.DataType, kind: pa.DataType) -> pa.Array:
    """Numbers that numpy computed as a column of a type, null where they are not valid."""
    return typed(pa.array(values, plain, mask=~valid), kind)
