"""`plan`: what a run would create, change, resume from and read. Changes nothing and starts no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from lakefeed.columns.column_types import stored
from lakefeed.columns.inferred import events_seen, inferred_lines
from lakefeed.columns.naming import cleaned_names
from lakefeed.columns.widening import merge_fields, merged_proposals
from lakefeed.dead_letters.pending import foreseen
from lakefeed.engine.batch.manifest import added
from lakefeed.engine.new_columns import learn_original_names
from lakefeed.engine.spark.analyzer import analyze_here
from lakefeed.errors import LakefeedError, SourceError
from lakefeed.events import Events, Offsets, Outstanding, lowest
from lakefeed.handles.change_advice import change_warnings, mapping_warning, route_warning, vectors_warning
from lakefeed.handles.growth import refuse_changed_types, refuse_new_columns, refuse_too_wide
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.progress import Expectations
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.partition_by import check_partitioning
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reports.asking import Asked, asking, named
from lakefeed.reports.outstanding import gone_words, young_words
from lakefeed.reports.plan.column_words import added_columns, column_words
from lakefeed.reports.plan.lost_columns import assume_columns, refuse_lost_columns
from lakefeed.reports.plan.query import plan_refresh
from lakefeed.reports.plan.sample import (
    alike,
    by_table,
    read_sample,
    sampled_expectations,
    sampled_projection,
    take_sample,
)
from lakefeed.reports.plan.shaped_sample import SampleOutcome, shaping_lines, way
from lakefeed.reports.plan.starts import Starts
from lakefeed.reports.plan.warnings import Warnings
from lakefeed.sources import Source, SourceClient, source_of
from lakefeed.sources.subscription import skipped_streams
from lakefeed.stores import UNSAFE, is_unsafe
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import extent
from lakefeed.tables.log.vector import PROPERTY
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.overwrite import OverwriteMode
from lakefeed.text import counted

ROUTE = "route"


@dataclass
class PlannedPartition:
    """Where reading a partition would go on; `begins` where the table has no position in it yet."""

    next: int
    end: int
    lag: int
    begins: bool
    next_place: str | None = None
    """The two offsets in words, where they are more than numbers."""
    end_place: str | None = None
    lag_words: str | None = None
    """What waits in words, where the lag is a guess."""


@dataclass
class PlannedTable:
    """What a run would do with one table: create, alter, nothing, or stop with the reason in `refused`.

    What stands for a route has the action `route` where its tables are known beforehand, or all that events
    wait for.
    """

    name: str
    path: str
    action: str = "nothing"
    columns: list[str] = field(default_factory=list)
    """All columns of a table to create, else those to add, also as a field of one: `customer.vip boolean`."""
    inferred: bool = False
    """Whether the columns are what a sample of the events shows."""
    seen: list[str] = field(default_factory=list)
    """For every inferred column, and every field in one: its type, and what the sample holds."""
    widened: list[str] = field(default_factory=list)
    """Inferred columns that get a wider type for sampled events, and what is written again for that."""
    names: dict[str, str] = field(default_factory=dict)
    """The new columns whose fields have a name that a Delta table does not take, by that name."""
    properties: dict[str, str] = field(default_factory=dict)
    resumes: dict[str, dict[str, PlannedPartition]] = field(default_factory=dict)
    lag: int = 0
    gone: list[str] = field(default_factory=list)
    """Sources with known files that are gone, and how many are new."""
    young: list[str] = field(default_factory=list)
    """Sources with files that may still be written, and are not counted in `lag`."""
    seen_in: int = 0
    """The sampled events that the inferred columns were seen in."""
    sampled: int = 0
    sampled_dead_letters: dict[str, int] = field(default_factory=dict)
    sampled_errors: dict[str, str] = field(default_factory=dict)
    """The first error of each code."""
    sampled_filtered: int = 0
    expectations: Expectations = field(default_factory=dict)
    """What the rules of `expect` say of the sampled events."""
    shaping: list[str] = field(default_factory=list)
    """What `where`, `select` and `expect` do to rows."""
    way: str | None = None
    """With SQL: whether Arrow or Spark runs it, and why."""
    warnings: list[str] = field(default_factory=list)
    replaces: str | None = None
    """With `mode: overwrite`: what becomes of the rows that are there."""
    reads: dict[str, str] = field(default_factory=dict)
    """With `query`: the tables that it reads, and what has become of each since the last refresh."""
    refresh: str | None = None
    """With `query`: what a run would do with it."""
    refused: str | None = None


@dataclass
class PlannedRun:
    """All tables of a pipeline, and what keeps a source from answering."""

    pipeline: str
    tables: list[PlannedTable]
    sources: dict[str, str | None]
    """None where the source answers, else why it does not."""
    skipped: dict[str, dict[str, str]] = field(default_factory=dict)
    """By source the streams that a run would not read, with why."""


def _interval(pipeline: Pipeline, handle: TableHandle) -> float:
    """After how many seconds batches of a table end, those of the source whose batches end first."""
    sources = [name for name in (handle.spec.from_ if handle.spec else ()) if name in pipeline.inputs]
    return min((pipeline.flush_for(name).interval for name in sources), default=pipeline.flush.interval)


def _in_order(pipeline: Pipeline, handle: TableHandle) -> bool:
    """Whether all events of a table are in one partition: files are read by their numbers."""
    sources = handle.spec.from_ if handle.spec else ()
    return len(sources) == 1 and source_of(pipeline, sources[0]).reads_files


def plan_run(pipeline: Pipeline) -> PlannedRun:
    """Look at tables and sources, and return what a run would do."""
    tables = Tables(pipeline, analyze_here)
    tables.functions.check()
    handles = _handles(tables)
    plans = {name: PlannedTable(name, _path(handle)) for name, handle in handles.items()}
    samples: dict[str, list[SampleOutcome]] = {name: [] for name in plans}
    warnings = Warnings(pipeline.name)
    for name, handle in handles.items():
        warnings.add(name, UNSAFE if is_unsafe(handle.path, handle.storage) else "")
        with _refusing(plans[name]):
            if (table := handle.look()) is not None:
                warnings.look_at_table(handle, table)
                warnings.look_at_shaping(handle, table, tables.shaping_of(handle.id.table))
            interval, in_order = _interval(pipeline, handle), _in_order(pipeline, handle)
            for text in change_warnings(handle, table, interval, in_order=in_order):
                warnings.add(name, text)
            warnings.add(name, vectors_warning(handle))
            warnings.add(name, mapping_warning(handle))
            warnings.add(name, route_warning(handle))
    skipped: dict[str, dict[str, str]] = {}
    with asking(pipeline) as asked:
        for source in asked.clients:
            try:
                skipped[source] = _ask(tables, source, asked, handles, plans, samples, warnings)
            except LakefeedError as error:
                asked.troubles[source] = named(source, str(error))
    queries = pipeline.queries()
    for name, handle in handles.items():
        plan = plans[name]
        with _refusing(plan):
            if name in queries:
                _plan_query(tables, handle, plan)
            else:
                _plan_table(handle, plan, samples.get(name, []))
        warnings.look_at_sample(handle, samples.get(name, []))
        plan.warnings = warnings.of(name)
        plan.lag = sum(at.lag for resumed in plan.resumes.values() for at in resumed.values())
        plan.refused = plan.refused and pipeline.with_file(plan.refused)
    return PlannedRun(pipeline.name, list(plans.values()), asked.troubles, skipped)


def _handles(tables: Tables) -> dict[str, TableHandle]:
    """The tables that are there or will be; a route stands for the tables that it may still make."""
    tables.find_routed()
    return {**tables.handles, **tables.routes}


def _path(handle: TableHandle) -> str:
    return handle.spec.route or handle.path if handle.spec and not handle.id.key else handle.path


def _ask(
    tables: Tables,
    source: str,
    asked: Asked,
    handles: dict[str, TableHandle],
    plans: dict[str, PlannedTable],
    samples: dict[str, list[SampleOutcome]],
    warnings: Warnings,
) -> dict[str, str]:
    """Ask one source where each of its tables would go on, and for some of the events that wait.

    Returns the streams that would be skipped, with why.
    """
    spec, client, ends = source_of(tables.pipeline, source), asked.clients[source], asked.ends[source]
    found = Starts(tables, source, client, warnings)
    for name, handle in handles.items():
        if handle.spec and source in handle.spec.from_:
            with _refusing(plans[name]):
                assume_columns(handle, client)
                found.look(handle)
                if not found.held[name]:
                    warnings.add(name, foreseen(tables, client, source, handle, found.at[name]))
    starts = found.at
    _tell_files(source, client.outstanding(lowest(starts.values()), ends), handles, plans)
    for name in starts:
        plans[name].resumes[source] = _resumes(spec, client, found, handles[name], ends)
    fed = {name: handles[name] for name in starts}
    warnings.look_at_findings(source, client.findings(), fed)
    _warn_of_retention(client, source, starts, fed, warnings)
    # Which of its tables an event of a route belongs to is not known here.
    for names in alike({name: at for name, at in starts.items() if not handles[name].id.key}):
        payloads: list[Events] | None = None
        for name in names:
            with _refusing(plans[name]):
                # The first that fails to read it tells why; where the source cannot go on, none can.
                if payloads is None:
                    payloads = read_sample(spec, client, starts[name], ends)
                    warnings.look_at_records(source, spec, payloads, fed)
                refuse_lost_columns(tables, source, client, handles[name], payloads, starts[name])
                learn_original_names(handles[name], client)
                parted = by_table(tables, handles[name], payloads)
                if not parted and (payloads or not found.held[name] or name not in tables.routes):
                    sample = take_sample(handles[name], spec, payloads, starts[name])
                    samples[name].append(sample)
                    warnings.look_at_encoding(name, source, spec, sample)
                elif not parted:
                    plans[name].action = ROUTE
                for one, events in parted:
                    plans[name].action = ROUTE
                    handles.setdefault(one.name, one)
                    learn_original_names(one, client)
                    with _refusing(plans.setdefault(one.name, PlannedTable(one.name, one.path))):
                        samples.setdefault(one.name, []).append(
                            take_sample(one, spec, events, starts.get(one.name))
                        )
    return found.skipped | skipped_streams(client, tables.pipeline.tables_of(source).values())


def _resumes(
    spec: Source, client: SourceClient, starts: Starts, handle: TableHandle, ends: Offsets
) -> dict[str, PlannedPartition]:
    """Where a table goes on in each partition."""
    shown = starts.shown(handle)
    lags = client.rows_between(shown, ends)
    return {
        partition: _planned(spec, partition, at, ends, lags, partition not in starts.held[handle.name])
        for partition, at in sorted(shown.items())
    }


def _tell_files(
    source: str,
    outstanding: Outstanding | None,
    handles: dict[str, TableHandle],
    plans: dict[str, PlannedTable],
) -> None:
    """Files of a source that are gone or too young, also for a table that a run would stop at."""
    gone, young = gone_words(outstanding), young_words(outstanding)
    for name, handle in handles.items():
        if handle.spec and source in handle.spec.from_:
            plans[name].gone += [f"{source}: {gone}"] if gone else []
            plans[name].young += [f"{source}: {young}"] if young else []


def _planned(
    spec: Source, name: str, at: int, ends: Offsets, lags: dict[str, int], begins: bool
) -> PlannedPartition:
    end = ends.get(name, at)
    words = spec.describe_offset(at), spec.describe_offset(end), spec.describe_lag({name: at}, ends, lags)
    return PlannedPartition(at, end, lags[name], begins, *words)


def _warn_of_retention(
    client: SourceClient,
    source: str,
    starts: dict[str, Offsets],
    handles: dict[str, TableHandle],
    warnings: Warnings,
) -> None:
    kept = client.retention()
    for name, handle in handles.items():
        own = {one: seconds for one, seconds in kept.items() if handle.spec and handle.spec.takes(one)}
        warnings.look_at_retention(name, source, own)
    for name, start in starts.items():
        warnings.look_at_age(name, source, kept, client.age(start))


def _plan_table(handle: TableHandle, plan: PlannedTable, samples: list[SampleOutcome]) -> None:
    """Whether the table is created, altered or left as it is, given what the sample shows."""
    assert handle.spec is not None
    if plan.action == ROUTE:
        return None
    plan.sampled = sum(one.events for one in samples)
    plan.sampled_dead_letters = added(one.dead_letters for one in samples)
    for one in reversed(samples):
        plan.sampled_errors |= {code: error for code, error in one.examples.items() if one.dead_letters[code]}
    _plan_shaping(handle, plan, samples)
    refuse_changed_types(handle, plan.sampled_errors)
    plan.widened = [one.widening.text for one in samples if one.widening and one.widening.columns]
    table = handle.look()
    new = merged_proposals(*(one.new_columns for one in samples))
    if new is not None:
        refuse_too_wide(handle, handle.events(), new)
        plan.seen = inferred_lines(new, handle.spec.evolve.type_change)
        plan.seen_in, plan.names = events_seen(new), dict(cleaned_names(new))
    if handle.spec.reshapes:
        # The columns are others than those that the events show.
        plan.seen, returned = [], merged_proposals(*(one.returned for one in samples))
        return _plan_reshaped(handle, plan, table, new, returned)
    if table is None:
        return _plan_creation(handle, plan, new)
    if new is not None:
        refuse_new_columns(handle, new)
    lacking = handle.changes(table)
    names = {column.name for column in lacking}
    seen = [column for column in stored(new) if column.name not in names] if new is not None else []
    plan.inferred = bool(seen)
    return _plan_alteration(handle, plan, table, [*lacking, *handle.assumed, *seen])


def _plan_shaping(handle: TableHandle, plan: PlannedTable, samples: list[SampleOutcome]) -> None:
    """What SQL does to rows, whether or not there are any."""
    plan.sampled_filtered = sum(one.filtered for one in samples)
    plan.expectations = sampled_expectations(samples)
    if projection := sampled_projection(handle, samples):
        plan.shaping, plan.way = list(shaping_lines(projection)), way(projection)


def _plan_reshaped(
    handle: TableHandle,
    plan: PlannedTable,
    table: LakeTable | None,
    new: pa.Schema | None,
    returned: pa.Schema | None,
) -> None:
    """The same for a table whose columns are made of those of the events."""
    assert handle.spec is not None
    plan.inferred = new is not None or returned is not None
    if table is None:
        _refuse_to_create(handle, plan)
        beginning = handle.beginning() if not plan.inferred else None
        if plan.inferred or beginning:
            columns = beginning[0] if beginning else handle.grown(new or pa.schema([]), returned)[0]
            check_partitioning(handle.partition_fields, columns)
            plan.columns = [column_words(column) for column in handle.table_schema(columns)]
        return
    for one in filter(None, (new, returned)):
        refuse_new_columns(handle, one)
    lacking = handle.changes(table)
    if plan.inferred:
        lacking = handle.lacking(table, handle.grown(new or pa.schema([]), returned)[0])
    _plan_alteration(handle, plan, table, lacking)


def _replaced(handle: TableHandle, table: LakeTable) -> str | None:
    if not isinstance(handle.mode, OverwriteMode):
        return None
    if handle.mode.is_open(table):
        return "adds to the rows of the last run, which did not come to its end"
    there = extent(data_files(table))
    rows = f"{there.files:,} files" if there.rows is None else counted(there.rows, "row")
    return f"replaces {rows} at its first commit with rows"


def _plan_creation(handle: TableHandle, plan: PlannedTable, new: pa.Schema | None) -> None:
    assert handle.spec is not None
    if _refuse_to_create(handle, plan):
        return
    declared = handle.spec.declared
    columns = merge_fields(merge_fields(declared or (), handle.assumed), new or ())
    plan.inferred = declared is None or new is not None or bool(len(handle.assumed))
    if not columns:
        return
    schema = pa.schema(columns)
    check_partitioning(handle.partition_fields, schema)
    plan.columns = [column_words(column) for column in handle.table_schema(schema)]


def _refuse_to_create(handle: TableHandle, plan: PlannedTable) -> bool:
    assert handle.spec is not None
    if not handle.spec.create:
        plan.refused = f"there is no Delta table at {handle.path} and `create` is false"
        return True
    plan.action, plan.properties = "create", _wanted_properties(handle)
    return False


def _plan_query(tables: Tables, handle: TableHandle, plan: PlannedTable) -> None:
    table = handle.look()
    if table is None and _refuse_to_create(handle, plan):
        return
    if table is not None:
        handle.changes(table)
        _plan_alteration(handle, plan, table, [])
    plan_refresh(tables, handle, plan, table)


def _plan_alteration(
    handle: TableHandle, plan: PlannedTable, table: LakeTable, columns: list[pa.Field]
) -> None:
    """What a table that is there would get: these columns, and properties of the file that it has not."""
    have, wanted = table.properties, _wanted_properties(handle)
    plan.columns, plan.replaces = added_columns(table, columns), _replaced(handle, table)
    plan.properties = {key: value for key, value in wanted.items() if have.get(key) != value}
    plan.action = "alter" if plan.columns or plan.properties or plan.widened else "nothing"


def _wanted_properties(handle: TableHandle) -> dict[str, str]:
    """What the file asks for, and what follows from it."""
    assert handle.spec is not None
    vectors = {PROPERTY: "true"} if handle.spec.updates == "merge_on_read" else {}
    return {**handle.spec.properties, **vectors}


@contextmanager
def _refusing(plan: PlannedTable) -> Iterator[None]:
    """Keep in the plan what would stop a table. A source that is away concerns more than one table."""
    try:
        yield
    except LakefeedError as error:
        if isinstance(error, SourceError) and error.retryable:
            raise
        plan.refused = plan.refused or str(error)
