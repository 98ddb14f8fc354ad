"""The step of the user's function: what it returns meets the columns of the table by its rules."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa

from lakefeed.columns.column_types import JSON, stored
from lakefeed.formats import Decoded
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.handles.table_plan import TablePlan
from lakefeed.pipeline.options.evolve import RESCUED
from lakefeed.rows.python import RunPython

_NO_COLUMNS = pa.schema([])


def python_step(table: TablePlan) -> RunPython:
    """The function of a table; while the columns that it returns are not known, it proposes all of them."""
    assert table.python is not None
    known = table.returned
    if known is not None and table.changes:
        known = table.changes.decoded(known)
    rules = replace(
        table.rules,
        new_column="add" if known is None else table.rules.new_column,
        dropped=frozenset(),
        renamed=frozenset(),
        taken=frozenset(one.name.lower() for one in table.partition_by if one.derived),
    )
    fitter = Fitter(_NO_COLUMNS if known is None else _fitted(known), rules)

    def fit(returned: pa.RecordBatch) -> Decoded:
        made = returned.to_struct_array()
        return _with_rescued(fitter.fit(made))

    return RunPython(table.name, table.python, fit)


def _fitted(columns: pa.Schema) -> pa.Schema:
    """The columns as the table stores them: how payloads write a value is over; `json` takes any."""
    kept = zip(columns, stored(columns), strict=True)
    return pa.schema([one if one.type == JSON else as_stored.remove_metadata() for one, as_stored in kept])


def _with_rescued(fitted: Decoded) -> Decoded:
    """What does not fit joins what was rescued from the event."""
    if fitted.rescued is None or RESCUED not in fitted.rows.schema.names:
        return fitted
    at = fitted.rows.schema.get_field_index(RESCUED)
    before = fitted.rows.column(at).to_pylist()
    both = [_joined(*pair) for pair in zip(before, fitted.rescued.to_pylist(), strict=True)]
    return replace(fitted, rows=fitted.rows.set_column(at, RESCUED, pa.array(both, pa.string())))


def _joined(before: str | None, new: str | None) -> str | None:
    if before is None or new is None:
        return before or new
    return json.dumps({**json.loads(before), **json.loads(new)}, ensure_ascii=False, separators=(",", ":"))
