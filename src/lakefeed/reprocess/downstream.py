"""Tables that a rewound table feeds: what they have read of what goes, and how to take them back as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from lakefeed.dead_letters.find import DeadLetterFilter, read_dead_letters
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import Source, source_of
from lakefeed.sources.delta.offset import DeltaOffset, version_start
from lakefeed.sources.delta.source import DeltaSource
from lakefeed.tables.log.checkpoint import read_transactions
from lakefeed.tables.log.log import Log
from lakefeed.tables.positions import application_id
from lakefeed.text import counted


def notes_on_fed_tables(tables: Tables, table: str, to_version: int) -> Iterator[str]:
    """For each table that this one feeds: what a rewind to `to_version` means for it, and what to type."""
    pipeline, graph = tables.pipeline, tables.pipeline.graph
    for name in graph.fed_from(table):
        if name not in tables.handles:
            yield f"table {name} is fed from {table}: look at each table of its route, and take it back too"
            continue
        log = Log.open(tables.handles[name].store)
        if log is None:
            continue
        for source in pipeline.tables[name].from_:
            if graph.table_read_by(source) != table:
                continue
            if source_of(pipeline, source).is_change_feed:
                yield f"table {name} follows the changes of {table}, and the rewind is one of them"
            else:
                yield _note(pipeline, (table, name), source, log, to_version)
                yield from _note_on_letters(tables, source, name, to_version)


def _partition(source: Source) -> str:
    assert isinstance(source, DeltaSource)
    return source.partition_of(None, 0)


def _note(pipeline: Pipeline, names: tuple[str, str], source: str, log: Log, to_version: int) -> str:
    table, fed = names
    limit = version_start(to_version + 1)
    partition = _partition(source_of(pipeline, source))
    position = application_id(pipeline.name, source, partition)
    now = read_transactions(log.store, log.newest).get(position)
    if (
        now is None
        or _before(DeltaOffset.of(now + 1), limit)
        or _has_only_passed(pipeline, source, limit, now + 1)
    ):
        return f"table {fed} is fed from {table}; it has read nothing of what goes, and continues behind it"
    target = _newest_before(log, position, limit)
    head = f"table {fed} is fed from {table} and has read rows that go; it stops until it is taken back too: "
    if target is None:
        return f"{head}drop it, so that it begins anew"
    return f"{head}lakefeed rewind {pipeline.file_argument} --table {fed} --to-version {target} --yes"


def _has_only_passed(pipeline: Pipeline, source: str, limit: DeltaOffset, position: int) -> bool:
    """Whether a reader has come from the limit to its position over versions without rows."""
    if not DeltaOffset.of(position).past:
        return False
    spec = source_of(pipeline, source)
    with closing(spec.client(pipeline.name, source)) as client:
        partition = _partition(spec)
        return client.rows_read({partition: limit.number}, {partition: position}) == {partition: 0}


def _note_on_letters(tables: Tables, source: str, fed: str, to_version: int) -> Iterator[str]:
    """Dead letters of rows that go: the events come again, in versions of their own."""
    wanted = DeadLetterFilter(table=fed, source=source)
    found = sum(
        DeltaOffset.of(offset).version > to_version
        for batch in read_dead_letters(tables, wanted, ["offset"])
        for offset in batch.column(0).to_pylist()
    )
    if found:
        yield (
            f"{counted(found, 'dead letter')} of {fed} {'is' if found == 1 else 'are'} of rows that go; "
            "their events come again: discard these letters instead of replaying them"
        )


def _newest_before(log: Log, position: str, limit: DeltaOffset) -> int | None:
    """The newest version of a table that has read nothing behind an offset of what feeds it."""
    newest = log.newest
    for version in reversed(log.versions):
        at = log.entry(version).transactions.get(position)
        if at is not None and _before(DeltaOffset.of(at + 1), limit):
            return newest
        if at is not None:
            newest = version - 1
    return None


def _before(at: DeltaOffset, limit: DeltaOffset) -> bool:
    """Whether a reader at an offset has read nothing from the limit on, which its snapshot may hold too."""
    return at <= limit if at.past else at.version < limit.version
