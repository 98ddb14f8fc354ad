"""Replay: dead letters through today's pipeline, into their tables, exactly once."""

from __future__ import annotations

from dataclasses import replace

from lakefeed.dead_letters.find import DeadLetterFilter, count_dead_letters
from lakefeed.engine.spark.analyzer import analyze_here
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reprocess.resend import Resend, TableReplay
from lakefeed.reprocess.resend_route import ResendRoute


def replay(
    pipeline: Pipeline, wanted: DeadLetterFilter, *, who: str = "", dry_run: bool = False
) -> list[TableReplay]:
    """Send dead letters through the pipeline again; may run while the pipeline runs.

    Those that become rows leave the dead letters; those that fail again stay as they are. With `dry_run`,
    nothing is changed, and files are written to a temporary folder only. The commits say `who` asked.
    """
    tables = Tables(pipeline, analyze_here)
    if tables.dead_letters.look() is None:
        return []
    found = []
    with LocalTasks() as here:
        for handle in list(tables.handles.values()):
            if wanted.table in (None, handle.name):
                table = handle.look() if dry_run else handle.open(pipeline.name)
                if table is not None:
                    found.append(Resend(tables, handle, wanted, who, dry_run, here).run())
                else:
                    waiting = count_dead_letters(tables, replace(wanted, table=handle.name))
                    found.append(TableReplay(handle.name, without_table=waiting))
        for name, front in tables.routes.items():
            if wanted.table in (None, name):
                found.append(ResendRoute(tables, front, wanted, who, dry_run, here).run())
    return found
