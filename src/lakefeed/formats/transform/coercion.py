"""Values made to fit their columns as kafka-delta-ingest does: what a stricter decoder would refuse."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.formats.fit.json_text import exact_json
from lakefeed.formats.refusal import Number
from lakefeed.pipeline.options.jmespath_expressions import iso8601

_INTEGER = re.compile(r"-?[0-9]+")


def coerce(value: dict[str, Any], fields: pa.Schema | pa.StructType) -> None:
    """Make the values of an object fit, in place: text for any value, moments for whole numbers.

    A null stays null. What else does not fit is left for the decoder to refuse.
    """
    for field in fields:
        if value.get(field.name) is not None:
            value[field.name] = _coerced(value[field.name], field.type)


def _coerced(value: Any, declared: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_string(declared):
        is_text = isinstance(value, str) and not isinstance(value, Number)
        return value if is_text else exact_json(value)
    if declared == TIMESTAMP:
        return _moment(value)
    if pa.types.is_struct(declared) and isinstance(value, dict):
        coerce(value, declared)
    if pa.types.is_list(declared) and isinstance(value, list):
        return [_coerced(element, declared.value_type) for element in value]
    return value


def _moment(value: Any) -> Any:
    """Microseconds since 1970 as text; anything else as it is."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, Number) and _INTEGER.fullmatch(value)):
        return value
    try:
        return iso8601(int(value))
    except ValueError:
        return value
