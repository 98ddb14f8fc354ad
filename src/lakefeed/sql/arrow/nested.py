"""Structs: fields taken from them, and new ones made."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sql.arrow.value import Errors, Function, Value
from lakefeed.sql.expression import Call, Literal


def _field(call: Call, values: Sequence[Value], rows: int) -> Value:
    # A field of a struct that is null is null, whatever lies below.
    return Value(pc.struct_field(values[0].column(rows), [call.option("ordinal")]), values[0].errors)


def _struct(call: Call, values: Sequence[Value], rows: int) -> Value:
    errors: Errors = {}
    for value in values:
        errors = {**value.errors, **errors}
    columns = [value.column(rows) for value in values[1::2]]
    typed = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, call.type, strict=True)
    ]
    return Value(pa.StructArray.from_arrays(typed, fields=list(call.type)), errors)


def _constant_names(call: Call) -> str | None:
    return None if all(isinstance(one, Literal) for one in call.given[0::2]) else call.name


FUNCTIONS = {
    "GetStructField": Function("a field of a struct", _field),
    "CreateNamedStruct": Function("struct, named_struct", _struct, _constant_names),
}
