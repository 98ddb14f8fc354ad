"""Structs: fields taken from them, and new ones made."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sql.arrow.value import Function, Value, first_errors, typed
from lakefeed.sql.expression import Call, Literal


def _field(call: Call, values: Sequence[Value], rows: int) -> Value:
    # A field of a struct that is null is null, whatever lies below.
    return Value(pc.struct_field(values[0].column(rows), [call.option("ordinal")]), values[0].errors)


def _struct(call: Call, values: Sequence[Value], rows: int) -> Value:
    members = zip(values[1::2], call.type, strict=True)
    columns = [typed(value.column(rows), field.type) for value, field in members]
    return Value(pa.StructArray.from_arrays(columns, fields=list(call.type)), first_errors(values))


def _constant_names(call: Call) -> str | None:
    return None if all(isinstance(one, Literal) for one in call.given[0::2]) else call.name


FUNCTIONS = {
    "GetStructField": Function("a field of a struct", _field),
    "CreateNamedStruct": Function("struct, named_struct", _struct, _constant_names),
}
