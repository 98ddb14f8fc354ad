"""`status`: what the tables of a pipeline hold and how far behind their sources they are. Starts no JVM."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lakefeed.engine.start_positions import outdated_texts
from lakefeed.errors import LakefeedError
from lakefeed.events import Offsets, Outstanding, lowest
from lakefeed.figures import iso
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.query.inputs import Inputs
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reports.asking import asking
from lakefeed.reports.outstanding import lag_words
from lakefeed.sources import Source, SourceClient, source_of
from lakefeed.sources.held_positions import held_positions
from lakefeed.sources.subscription import StreamsClient, skipped_streams, unfit_streams
from lakefeed.tables.detail.contents import contents_of
from lakefeed.tables.detail.shaped import Shaped, shaped_by
from lakefeed.tables.log.log import Log
from lakefeed.tables.positions import marks_of
from lakefeed.tables.table import LakeTable, commit_info_of

_LOOKED_AT = 200
"""Entries in which the last refresh is looked for: upkeep may have committed behind it."""


@dataclass
class PartitionStatus:
    """One partition of a source, as one table sees it.

    `end` and `lag` are None when the source does not answer.
    """

    next: int
    end: int | None = None
    lag: int | None = None
    next_place: str | None = None
    """The two offsets in words, where they are more than numbers."""
    end_place: str | None = None
    lag_words: str | None = None
    """What waits in words, where the lag is a guess."""


@dataclass
class InputStatus:
    """A table that a query reads: the version that the rows were made of, and the newest that there is."""

    version: int | None
    newest: int | None
    behind: int | None
    """Versions with other rows in between; None where the query has not read it."""


@dataclass
class QueryStatus:
    """A table that a query fills. `behind` is None where it has never been run as it is now."""

    inputs: dict[str, InputStatus] = field(default_factory=dict)
    behind: int | None = None
    refreshed: str | None = None
    """When the query was last run; None where the log does not tell."""


@dataclass
class TableStatus:
    """One table. A table that does not exist yet has no version."""

    name: str
    path: str
    version: int | None = None
    rows: int = 0
    files: int = 0
    small_files: int = 0
    bytes: int = 0
    last_commit: str | None = None
    offsets: dict[str, dict[str, PartitionStatus]] = field(default_factory=dict)
    lag: int | None = None
    lag_words: str | None = None
    """What waits in words, where the lag is a guess."""
    query: QueryStatus | None = None
    shaped: Shaped | None = None
    """With `where`, `select`, `expect` or `python`: what was left out, and how rows have met the rules."""
    outdated: list[str] = field(default_factory=list)
    """What it has not got of its streams, and no event will bring, each with the command that does."""
    unapplied: int = 0
    """In a copy of a database: changes of its rows that are dead letters."""
    backwards: list[str] = field(default_factory=list)
    """In a copy of a database: that changes are older than those before, and what to do about it."""
    error: str | None = None


@dataclass
class PipelineStatus:
    """All tables of a pipeline, and what keeps a source from answering."""

    pipeline: str
    tables: list[TableStatus]
    dead_letters: TableStatus
    sources: dict[str, str | None]
    """None where the source answers, else why it does not."""
    outstanding: dict[str, Outstanding] = field(default_factory=dict)
    """What waits in sources that know it in files or bytes, and how far their snapshot is."""
    skipped: dict[str, dict[str, str]] = field(default_factory=dict)
    """By source the streams that are not read, with why, and what to do behind a line break."""


def status(pipeline: Pipeline) -> PipelineStatus:
    """Look at every table's log and ask every source for its ends."""
    tables = Tables(pipeline)
    tables.find_routed()
    with asking(pipeline) as asked:
        unfit = {name: _unfit(tables, name, asked.clients) for name in pipeline.tables}
        found = [
            _table(pipeline, handle, asked.clients, asked.ends, unfit[handle.id.table])
            for handle in tables.handles.values()
        ]
        for name, names in pipeline.queries().items():
            one = next(one for one in found if one.name == name)
            try:
                one.query = _query(tables, name, names)
            except LakefeedError as error:
                one.error = one.error or str(error)
        dead_letters = _table(pipeline, tables.dead_letters, {}, {})
        if dead_letters.rows:
            _count_unapplied(tables, found)
        outstanding = {
            source: known
            for source, client in asked.clients.items()
            if (known := client.outstanding(_slowest(found, source), asked.ends.get(source, {})))
        }
        skipped = {
            source: streams
            for source, client in asked.clients.items()
            if (streams := _skipped(pipeline, source, client, unfit))
        }
    return PipelineStatus(pipeline.name, found, dead_letters, asked.troubles, outstanding, skipped)


def _unfit(tables: Tables, name: str, clients: Mapping[str, SourceClient]) -> dict[str, str]:
    """The streams that a table takes by a pattern and skips; what keeps it from running shows elsewhere."""
    spec, unfit = tables.pipeline.tables[name], dict[str, str]()
    for source in (one for one in spec.from_ if one in clients):
        with suppress(LakefeedError):
            unfit |= unfit_streams(clients[source], tables.sources_of(spec), name, spec)
    return unfit


def _skipped(
    pipeline: Pipeline, source: str, client: SourceClient, unfit: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    fed = pipeline.tables_of(source)
    own = {stream: text for name in fed for stream, text in unfit[name].items()}
    with suppress(LakefeedError):
        own |= skipped_streams(client, fed.values())
    return own


def _count_unapplied(tables: Tables, found: list[TableStatus]) -> None:
    from lakefeed.dead_letters.unapplied import unapplied_changes

    try:
        counts = unapplied_changes(tables)
    except LakefeedError as error:
        for one in found:
            one.error = one.error or str(error)
    else:
        for one in found:
            one.unapplied = counts.get(one.name, 0)


def _slowest(tables: list[TableStatus], source: str) -> Offsets:
    """Where the table is that has read least of a source."""
    held = [one.offsets.get(source, {}) for one in tables]
    return lowest({partition: at.next for partition, at in one.items()} for one in held)


def _table(
    pipeline: Pipeline,
    handle: TableHandle,
    clients: dict[str, SourceClient],
    ends: dict[str, Offsets],
    unfit: Collection[str] = (),
) -> TableStatus:
    found = TableStatus(handle.name, handle.path)
    try:
        table = LakeTable.open(handle.name, handle.path, handle.storage, handle.store)
    except LakefeedError as error:
        found.error = str(error)
        return found
    if table is not None:
        _describe(found, table, handle.spec.target_file_size if handle.spec else 0)
        if handle.spec and (handle.spec.where or handle.spec.expect):
            found.shaped = shaped_by(table.log())
        found.backwards = backwards_texts(pipeline.name, handle, table.version)
    transactions = dict(table.transactions) if table else {}
    told: list[tuple[int | None, str | None]] = []
    for source in handle.spec.from_ if handle.spec else ():
        assert handle.spec is not None
        spec = source_of(pipeline, source)
        held = held_positions(pipeline, source, handle.spec, transactions)
        marks = marks_of(transactions, pipeline.name, source)
        try:
            if source in clients:
                client = StreamsClient(clients[source], spec, handle.spec, unfit)
                held = _reading_from(client, held, marks)
                found.outdated += outdated_texts(pipeline, source, client, marks, held)
        except LakefeedError as error:
            found.error = pipeline.with_file(str(error))
        end = ends.get(source, {})
        lags = clients[source].rows_between(held, end) if source in clients else {}
        found.offsets[source] = partitions_at(held, end, lags, spec)
        told.append((sum(lags.values()), spec.describe_lag(held, end, lags) if lags else None))
    found.lag = lag_of(found.offsets)
    found.lag_words = None if found.lag is None else lag_words(told)
    return found


def backwards_texts(pipeline: str, handle: TableHandle, version: int) -> list[str]:
    """Which changes of a database are older than those before, by the newest entries of a table."""
    if handle.spec is None or handle.spec.mode not in ("upsert", "history"):
        return []
    # With it come the modes with keys.
    from lakefeed.tables.write.keyed.backwards import backwards_words, logged

    known = logged(handle.store, version, pipeline).values()
    return [backwards_words(one.backwards, one.columns) for one in known if one.backwards]


def partitions_at(
    positions: Offsets, ends: Offsets, lags: Mapping[str, int], spec: Source
) -> dict[str, PartitionStatus]:
    """How far a table is in each partition of a source; `ends` and `lags` lack those that nobody knows."""
    return {
        partition: PartitionStatus(
            at,
            ends.get(partition),
            lags[partition] if partition in ends else None,
            spec.describe_offset(at),
            spec.describe_offset(ends[partition]) if partition in ends else None,
            spec.describe_lag({partition: at}, ends, lags) if partition in ends else None,
        )
        for partition, at in sorted(positions.items())
    }


def lag_of(offsets: Mapping[str, Mapping[str, PartitionStatus]]) -> int | None:
    """Events that wait over all partitions; None while a source does not answer."""
    known = [one.lag for partitions in offsets.values() for one in partitions.values()]
    return None if None in known or not known else sum(lag for lag in known if lag is not None)


def _query(tables: Tables, name: str, names: list[str]) -> QueryStatus:
    """How the rows of a table stand to the tables that its query reads."""
    log = Log.open(tables.handles[name].store)
    transactions = log.snapshot(log.newest).transactions if log else {}
    standing = Inputs(tables, name, names).stand(transactions)
    recorded = standing.recorded
    inputs = {}
    for one in names:
        seen = standing.seen.get(one)
        behind = len(seen.changed) if seen and recorded is not None else None
        inputs[one] = InputStatus((recorded or {}).get(one), seen.version if seen else None, behind)
    return QueryStatus(inputs, standing.behind, _refreshed(log) if log else None)


def _refreshed(log: Log) -> str | None:
    """When the newest refresh was committed, as far as the entries that are there tell."""
    for entry in reversed(list(log.newest_entries(_LOOKED_AT))):
        if commit_info_of(entry.info).get("kind") == "refresh":
            return None if entry.committed is None else iso(entry.committed / 1000)
    return None


def _reading_from(client: SourceClient, held: Offsets, marks: dict[str, int]) -> Offsets:
    """Where a run would go on: partitions that the table has never read are behind by all that they hold."""
    return client.check(held, marks) if held else client.start()


def _describe(found: TableStatus, table: LakeTable, target_file_size: int) -> None:
    held = contents_of(table, target_file_size)
    found.version, found.rows, found.files = held.version, held.rows, held.files
    found.small_files, found.bytes = held.small_files, held.size
    found.last_commit = None if held.last_commit is None else iso(held.last_commit)
