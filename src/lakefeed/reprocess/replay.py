"""Replay: dead letters through today's pipeline, into their tables, exactly once."""

from __future__ import annotations

from dataclasses import replace

from lakefeed.dead_letters.find import DeadLetterFilter, count_dead_letters, read_dead_letters
from lakefeed.engine.spark.analyzer import analyze_here
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.errors import LakefeedError, TableError
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reprocess.resend import Resend, TableReplay
from lakefeed.reprocess.resend_route import ResendRoute


def replay(
    pipeline: Pipeline, wanted: DeadLetterFilter, *, who: str = "", dry_run: bool = False
) -> list[TableReplay]:
    """Send dead letters through the pipeline again; may run while the pipeline runs.

    Raises what a table fails with when all others are done.
    Those that become rows leave the dead letters; those that fail again stay as they are. With `dry_run`,
    nothing is changed, and files are written to a temporary folder only. The commits say `who` asked.
    """
    reports, errors = replay_each(pipeline, wanted, who=who, dry_run=dry_run)
    if len(errors) > 1:
        raise TableError("\n".join(map(str, errors)))
    for error in errors:
        raise error
    return reports


def replay_each(
    pipeline: Pipeline, wanted: DeadLetterFilter, *, who: str = "", dry_run: bool = False
) -> tuple[list[TableReplay], list[LakefeedError]]:
    """The same, without raising: a table that fails stops alone. The second part are the errors of tables."""
    tables = Tables(pipeline, analyze_here)
    if tables.dead_letters.look() is None:
        return [], []
    found, errors = [], list[LakefeedError]()
    names = {name for batch in read_dead_letters(tables, wanted, ["table"]) for name in batch[0].to_pylist()}
    with LocalTasks() as here:
        for name, handle in [*tables.handles.items(), *tables.routes.items()]:
            if wanted.table not in (None, name):
                continue
            kind = ResendRoute if name in tables.routes else Resend
            resend = kind(tables, handle, wanted, who, dry_run, here)
            try:
                # What is wrong with a table that has none is no concern of a replay.
                if name in names:
                    _send(resend, tables, handle, wanted, dry_run=dry_run)
            except LakefeedError as error:
                resend.report.error = str(error)
                errors.append(error)
            found.append(resend.report)
    return found, errors


def _send(
    resend: Resend, tables: Tables, handle: TableHandle, wanted: DeadLetterFilter, *, dry_run: bool
) -> None:
    """Send the dead letters of one table, or count those that wait for it."""
    if handle.name not in tables.routes:
        table = handle.look() if dry_run else handle.open(tables.pipeline.name)
        if table is None:
            letters = count_dead_letters(tables, replace(wanted, table=handle.name))
            resend.report.without_table = letters
            return
    resend.run()
