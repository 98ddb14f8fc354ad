"""A rule of `expect` that stops its table, in words."""

from __future__ import annotations

from lakefeed.engine.batch.manifest import TableManifest
from lakefeed.errors import TableError
from lakefeed.handles.table_plan import TableId
from lakefeed.rows.expect import FAILED
from lakefeed.text import counted


def not_met(table: TableId, result: TableManifest) -> TableError:
    """What stops a table whose rows do not meet a rule that says so."""
    rule, row = next(iter(result.failed.items()))
    rows = result.expectations[rule].get(FAILED, 0)
    return TableError(
        f"table {table}: {counted(rows, 'row')} of a batch {'does' if rows == 1 else 'do'} not meet "
        f"`expect.{rule}`, and its `otherwise` is fail; one of them: {row}.\n"
        "Nothing of the batch was committed. Correct the producer or the rule, then start again."
    )
