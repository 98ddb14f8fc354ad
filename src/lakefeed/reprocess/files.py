"""Files of a source that are to be read again, or that are forgotten; both are rows of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.errors import UsageError
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources.files.filter import FileFilter, ledgers
from lakefeed.sources.files.ledger import FORGOTTEN, GONE, Ledger, found, next_number, with_state
from lakefeed.text import listed


@dataclass
class FilesPlan:
    """Files of one source that a command is about."""

    source: str
    paths: list[str] = field(default_factory=list)
    appended_to: list[str] = field(default_factory=list)
    """Tables in which the rows of a file would be a second time."""


def retry_or_forget(
    pipeline: Pipeline,
    source: str | None,
    paths: Sequence[str],
    *,
    forget: bool,
    who: str,
    reason: str = "",
    dry_run: bool = False,
) -> list[FilesPlan]:
    """Give files a new number, so that they are read again, or forget them. Raises UsageError for others."""
    plans = []
    chosen = {}
    for name, spec in ledgers(pipeline, source).items():
        ledger = Ledger(spec.ledger_location(pipeline.name, name))
        rows = _newest(ledger.rows, paths)
        if rows.num_rows:
            chosen[name] = (ledger, rows)
            tables = [each for each, table in pipeline.tables_of(name).items() if table.mode == "append"]
            plans.append(FilesPlan(name, rows["path"].to_pylist(), tables))
    if not plans:
        raise UsageError(f"no file in the ledger is named {listed(paths)}; see: lakefeed files list")
    for ledger, rows in {} if dry_run else chosen.values():
        info = {"by": who, **({"reason": reason} if reason else {})}
        while not ledger.append(_noted(ledger, rows, forget=forget), info):
            rows = _newest(ledger.rows, paths)
    return plans


def _noted(ledger: Ledger, rows: pa.Table, *, forget: bool) -> pa.Table:
    return with_state(rows, FORGOTTEN) if forget else found(rows, next_number(ledger.rows))


def _newest(rows: pa.Table, paths: Sequence[str]) -> pa.Table:
    """Of each path that is meant the row with the last number, in the order of the numbers."""
    rows = rows.filter(pc.invert(pc.is_in(rows["state"], value_set=pa.array(GONE))))
    meant = pa.concat_tables([FileFilter(name=path).chosen(rows) for path in paths])
    last = {path: at for at, path in enumerate(meant["path"].to_pylist())}
    return meant.take(pa.array(sorted(last.values()), pa.int64())).sort_by("number")
