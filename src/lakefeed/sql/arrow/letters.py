"""Upper and lower case of every letter, as Unicode 17 has them, which Spark follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sql.arrow.strings import only_texts
from lakefeed.sql.arrow.value import Function, Kernel, Value, flags
from lakefeed.sql.expression import Call

# Letters that are younger than the Unicode of the oldest Python: lower case and upper case.
_YOUNG = {
    0x19B: 0xA7DC,
    0x264: 0xA7CB,
    0x1C8A: 0x1C89,
    0xA7CD: 0xA7CC,
    0xA7CF: 0xA7CE,
    0xA7D3: 0xA7D2,
    0xA7D5: 0xA7D4,
    0xA7DB: 0xA7DA,
    **{lower: lower - 0x20 for lower in range(0x10D70, 0x10D86)},
    **{lower: lower - 0x1B for lower in range(0x16EBB, 0x16ED4)},
}
_TO_LOWER = {upper: lower for lower, upper in _YOUNG.items()}


def upper_case(text: str) -> str:
    """A text in capital letters."""
    return text.translate(_YOUNG).upper()


def lower_case(text: str) -> str:
    """A text in small letters."""
    return text.translate(_TO_LOWER).lower()


def _kernel(ascii_only: Callable[[pa.Array], Any], any_text: Callable[[str], str]) -> Kernel:
    def kernel(_: Call, values: Sequence[Value], rows: int) -> Value:
        column = values[0].column(rows)
        made = ascii_only(column)
        # Arrow's own functions change one letter into one letter, and know no final sigma.
        other = flags(pc.invert(pc.string_is_ascii(column)))
        if other.any():
            texts = [any_text(column[row].as_py()) for row in np.flatnonzero(other).tolist()]
            made = pc.replace_with_mask(made, pa.array(other), pa.array(texts, pa.string()))
        return Value(made, values[0].errors)

    return kernel


FUNCTIONS = {
    "Upper": Function("upper, ucase", _kernel(pc.ascii_upper, upper_case), only_texts),
    "Lower": Function("lower, lcase", _kernel(pc.ascii_lower, lower_case), only_texts),
}
