"""The status that a run serves: the same as `lakefeed status`, from what the run knows about itself."""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.figures import iso
from lakefeed.reports.status import InputStatus, PipelineStatus, QueryStatus, TableStatus
from lakefeed.tables.detail.shaped import Shaped
from lakefeed.watch.view import RunView, TableView


def status_of(view: RunView) -> PipelineStatus:
    """The status of a run, from its state: no table is read and no source is asked."""
    versions = {one.name: one.version for one in view.tables}
    return PipelineStatus(
        pipeline=view.pipeline,
        tables=[_viewed(one, versions) for one in view.tables],
        dead_letters=_viewed(view.dead_letter_table, versions),
        sources={one.name: one.stopped or one.trouble or None for one in view.sources},
        outstanding={one.name: one.outstanding for one in view.sources if one.outstanding},
        skipped={one.name: {**one.skipped, **one.lost} for one in view.sources if one.skipped or one.lost},
    )


def _query(table: TableView, versions: Mapping[str, int | None]) -> QueryStatus:
    inputs = {
        name: InputStatus(
            table.inputs.get(name), versions.get(name), table.behind_by.get(name) if table.inputs else None
        )
        for name in table.reads
    }
    refreshed = None if table.last_refresh is None else iso(table.last_refresh)
    return QueryStatus(inputs, table.behind, refreshed)


def _shaped(table: TableView) -> Shaped | None:
    """What this run has counted."""
    if not (table.filtered or table.expectations):
        return None
    counts = {rule: dict(results) for rule, results in table.expectations.items()}
    return Shaped(table.first_version or 0, table.filtered, counts)


def _viewed(table: TableView, versions: Mapping[str, int | None]) -> TableStatus:
    return TableStatus(
        name=table.name,
        path=table.path,
        version=table.version,
        rows=table.rows,
        files=table.files,
        small_files=table.small_files,
        bytes=table.size,
        last_commit=None if table.last_commit is None else iso(table.last_commit),
        offsets=table.offsets,
        lag=table.lag,
        lag_words=table.lag_words,
        query=_query(table, versions) if table.query else None,
        shaped=_shaped(table),
        unapplied=table.unapplied,
        backwards=list(table.backwards.values()),
        error=table.stopped or table.trouble or None,
    )
