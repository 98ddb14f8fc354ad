"""Whole numbers in floating-point columns whose type was inferred: they are exact, or refused."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import type_text
from lakefeed.formats.fit.columns import offsets_of
from lakefeed.formats.fit.doubt import Doubt, either, lifted
from lakefeed.formats.refusal import Misfit, Number, shown

_DIGITS = {pa.float32(): 24, pa.float64(): 53}
"""A float of so many binary digits holds each whole number of so many digits."""


def has_floats(kind: pa.DataType) -> bool:
    """Whether there is a float anywhere in the type."""
    return kind in _DIGITS or any(has_floats(kind.field(at).type) for at in range(kind.num_fields))


def inexact(column: pa.Array) -> Doubt:
    """Doubt about the values with a number so large that it may have been rounded."""
    kind, types = column.type, pa.types
    if kind in _DIGITS:
        large = pc.greater_equal(pc.abs(column), pa.scalar(2.0 ** _DIGITS[kind], kind))
        if not pc.any(large).as_py():
            return None
        doubt: np.ndarray[Any, Any] = large.fill_null(False).to_numpy(zero_copy_only=False)
        return doubt
    if types.is_struct(kind):
        return reduce(either, (inexact(column.field(at)) for at in range(kind.num_fields)), None)
    if types.is_list(kind):
        return lifted(offsets_of(column), inexact(column.values))
    return lifted(offsets_of(column), inexact(column.items)) if types.is_map(kind) else None


def refuse_inexact(kind: pa.DataType, value: Any) -> None:
    """Raise Misfit where a whole number would be rounded in a value that fits the type."""
    if kind in _DIGITS:
        if isinstance(value, Number) and value.lstrip("-").isdigit():
            rounded = float(np.float32(value)) if kind == pa.float32() else float(value)
            if rounded != int(value):
                message = f"expected {type_text(kind)}, got {shown(value)}, which it cannot hold exactly"
                raise Misfit("out_of_range", message)
    elif value and isinstance(value, dict):
        is_map = pa.types.is_map(kind)
        members = dict.fromkeys(value, kind.item_type) if is_map else {one.name: one.type for one in kind}
        for name, member in members.items():
            _refuse_within(name, member, value.get(name))
    elif isinstance(value, list):
        for at, element in enumerate(value):
            _refuse_within(at, kind.value_type, element)


def _refuse_within(part: str | int, kind: pa.DataType, value: Any) -> None:
    try:
        refuse_inexact(kind, value)
    except Misfit as misfit:
        raise misfit.within(part) from None
