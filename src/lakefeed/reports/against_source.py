"""`verify --against-source`: copies of database tables, compared with the rows that the database has."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from lakefeed.errors import LakefeedError, UsageError
from lakefeed.events import Offsets
from lakefeed.handles.handle import TableHandle
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.table import Table
from lakefeed.reports.comparison import Comparing, Comparison, DifferentRange, What
from lakefeed.reports.copied_stream import CopiedStream, Copy
from lakefeed.reports.row_hashes import Hashes
from lakefeed.sources import Source, SourceRows, source_of
from lakefeed.sources.held_positions import own_positions
from lakefeed.sources.subscription import unfit_streams
from lakefeed.tables.data_files import data_files
from lakefeed.tables.verify.finding import Finding
from lakefeed.text import counted, listed, without_name

_SHOWN = 10
"""Keys of a range that a finding names, of each kind."""
_LOOKS = 10
"""How often tables are looked at again because a run has moved on meanwhile."""
_TELL_EVERY = 10.0

Tell = Callable[[str], None]
_Changes = list[tuple[Offsets, str, pa.RecordBatch | None]]
"""Keys of a stream that have changed since some positions; None: all may have."""


@dataclass
class Compared:
    """What the comparison of one table has shown."""

    comparisons: list[Comparison] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    """Why a stream of a copy was not compared, and what of others was not."""
    complete: bool = True
    """Whether all streams of the table were compared."""


def compare_with_source(
    pipeline: Pipeline, handles: Sequence[TableHandle], tell: Tell
) -> tuple[dict[str, Compared], list[str]]:
    """Compare the copies among the tables with the rows of their sources; by the name of the table.

    Also returns why streams that copies of the file should have are in none. Raises UsageError where no table
    is a copy. Starts no JVM and changes nothing; memory does not grow with the tables.
    """
    found = {handle.name: Compared() for handle in handles}
    no_copies = {name: _no_copy(pipeline, spec) for name, spec in pipeline.tables.items()}
    copies: dict[str, list[TableHandle]] = {}
    for name, spec in pipeline.tables.items():
        if no_copies[name] is None:
            copies |= {source: copies.get(source, []) for source in spec.from_}
    for handle in handles:
        why = no_copies[handle.id.table]
        if why is not None:
            found[handle.name].notes.append(f"not compared with its source: {why}")
            continue
        for name in handle.spec.from_ if handle.spec else ():
            copies[name].append(handle)
    if not copies:
        raise UsageError(
            "--against-source compares copies of database tables: those with `mode: upsert` or "
            f"`mode: history` that read a source of type postgres. {pipeline.file_argument} has none."
        )
    missing: list[str] = []
    for name, some in copies.items():
        takes = {table: spec.takes for table, spec in pipeline.tables.items() if name in spec.from_}
        takes = {table: one for table, one in takes.items() if no_copies[table] is None}
        missing += _compare_source(pipeline, name, some, takes, found, tell)
    return found, missing


def _no_copy(pipeline: Pipeline, spec: Table) -> str | None:
    """Why a table is no copy of database tables, in words; None if it is."""
    if not spec.from_:
        return "it has a `query`"
    for name in spec.from_:
        source = source_of(pipeline, name)
        if type(source).rows_now is Source.rows_now:
            return f"{name} is of type {source.type}, and only postgres has rows to compare with"
    if spec.mode not in ("upsert", "history"):
        return f"`mode: {spec.mode}` keeps every change; `upsert` and `history` keep the rows of the source"
    return "`delete_when` says what its rows are" if spec.delete_when else None


def _compare_source(
    pipeline: Pipeline,
    name: str,
    handles: Sequence[TableHandle],
    takes: Mapping[str, Callable[[str], bool]],
    found: Mapping[str, Compared],
    tell: Tell,
) -> list[str]:
    """Compare all copies of one source at one moment of it; `takes` says what each table of the file takes.

    Returns why streams that these tables take are in no copy.
    """
    for look in range(_LOOKS):
        copies = [one for handle in handles for one in _pinned(pipeline, name, handle)]
        streams = sorted({one.stream for one in copies})
        rows = source_of(pipeline, name).rows_now(pipeline.name, name, streams)
        assert rows is not None
        with closing(rows):
            changes, covered = _changes(rows, copies)
            if covered is False and look < _LOOKS - 1:
                # A run has committed since the tables were looked at, and moved the slot on.
                time.sleep(0.1 * look)
                continue
            for copy in copies:
                compared = found[copy.handle.name]
                why = copy.problem(rows)
                if why is not None:
                    compared.unchecked.append(f"{copy.stream} was not compared with its source: {why}")
                    compared.complete = False
                    continue
                comparison = _compare(copy, rows, changes, tell)
                compared.comparisons.append(comparison)
                _report(name, comparison, compared, covered is True)
            copied = {(one.handle.id.table, one.stream) for one in copies}
            return list(_missing(rows, takes, copied, partial(_unfit, pipeline, name)))
    return []


def _missing(
    rows: SourceRows,
    takes: Mapping[str, Callable[[str], bool]],
    copied: Collection[tuple[str, str]],
    unfit_of: Callable[[str], dict[str, str]],
) -> Iterator[str]:
    """Why there is no copy of streams that tables of the file take."""
    unfit: dict[str, dict[str, str]] = {}
    for stream, why in rows.streams().items():
        tables = [
            name for name, takes_it in takes.items() if takes_it(stream) and (name, stream) not in copied
        ]
        unfit |= {table: unfit_of(table) for table in tables if why is None and table not in unfit}
        whys = [why, *(unfit.get(table, {}).get(stream) for table in tables), "no run has copied it yet"]
        if tables:
            first = without_name(stream, next(filter(None, whys)) or "").partition("\n")[0]
            yield f"{stream} was not compared with its source: {first.removesuffix('.')}"


def _unfit(pipeline: Pipeline, source: str, table: str) -> dict[str, str]:
    """The streams that a table skips, with why."""
    spec = pipeline.tables[table]
    with (
        suppress(LakefeedError),
        closing(source_of(pipeline, source).client(pipeline.name, source)) as client,
    ):
        return unfit_streams(client, [source_of(pipeline, one) for one in spec.from_], table, spec)
    return {}


def _pinned(pipeline: Pipeline, name: str, handle: TableHandle) -> Iterator[Copy]:
    """The streams of a table as its newest version has them."""
    table, spec = handle.look(), handle.spec
    if table is None or spec is None:
        return
    table.refresh()
    source = source_of(pipeline, name)
    positions = own_positions(pipeline, name, spec, table.transactions)
    streams = sorted({source.stream_of(one) or "" for one in positions})
    files = data_files(table)
    for stream in streams:
        own = {one: at for one, at in positions.items() if source.stream_of(one) == stream}
        yield Copy(handle, table, table.version, stream, own, files, len(streams) > 1)


def _changes(rows: SourceRows, copies: Sequence[Copy]) -> tuple[_Changes, bool | None]:
    """What has changed between the positions of the copies and the moment, and whether all of it is known.

    The source is asked once for all copies, and again for those that have another position in a stream.
    """
    groups: list[Offsets] = []
    for copy in copies:
        for group in groups:
            if all(group.get(name, at) == at for name, at in copy.positions.items()):
                group.update(copy.positions)
                break
        else:
            groups.append(dict(copy.positions))
    found: _Changes = []
    covered: bool | None = True
    for group in groups:
        found += [(group, stream, keys) for stream, keys in rows.changed(group)]
        state = rows.covers(group)
        covered = None if state is None or covered is None else covered and state
    return found, covered


def _compare(copy: Copy, rows: SourceRows, changes: _Changes, tell: Tell) -> Comparison:
    pair = CopiedStream(copy, rows)
    comparison = Comparison(
        stream=copy.stream,
        moment=rows.moment,
        position=rows.position(copy.positions),
        version=copy.version,
        columns=pair.columns.names,
        left_out=pair.left_out(),
    )
    told = partial(_tell, tell, copy, rows.estimate(copy.stream), [time.monotonic()])
    return Comparing(pair, _changed_keys(pair, changes), comparison, told).run()


def _changed_keys(pair: CopiedStream, changes: _Changes) -> Hashes | None:
    """The hashes of keys that may differ, as a change of them was not copied yet; None: all may."""
    found = [np.zeros(0, np.uint64)]
    for positions, stream, keys in changes:
        if stream == pair.copy.stream and positions.items() >= pair.copy.positions.items():
            if keys is None:
                return None
            found.append(pair.key_hashes(keys))
    return np.unique(np.concatenate(found))


def _tell(tell: Tell, copy: Copy, total: int, last: list[float], count: int, side: str) -> None:
    """Say now and then how far a long comparison is."""
    if time.monotonic() - last[0] > _TELL_EVERY:
        last[0] = time.monotonic()
        tell(f"{copy.handle.name}: {count:,} of about {total:,} rows of {copy.stream} read in the {side}")


def _report(source: str, one: Comparison, compared: Compared, covered: bool) -> None:
    """Findings for ranges that differ, and notes on the rest."""
    equal_rows = "" if one.different else f", equal in {listed(one.columns)}"
    ranges = f" in {counted(one.ranges, 'range')}" if one.ranges > 1 else ""
    compared.notes.append(
        f"{one.stream} at {one.moment}: {counted(one.source_rows, 'row')} in the source, "
        f"{one.copy_rows:,} in the copy{ranges}{equal_rows}"
    )
    if one.waiting:
        compared.notes.append(
            f"{one.stream}: {counted(one.waiting, 'row')} changed behind the position of the copy, "
            f"{one.position}: not counted as differences. A run copies them"
        )
    compared.unchecked += [f"{one.stream}: {what}" for what in one.left_out]
    if one.different and not covered:
        compared.notes.append(
            f"{one.stream}: the slot does not have what has changed since {one.position}, so a difference "
            "may be a change that was not copied"
        )
    for each in one.different:
        text = f"{one.stream}: {_words(each)}"
        compared.findings.append(Finding("difference", text, one.version, f"{source}/{one.stream}"))


def _words(one: DifferentRange) -> str:
    kinds: list[tuple[What, str, int]] = [
        ("missing", "missing in the copy", one.missing),
        ("extra", "only in the copy", one.extra),
        ("values", "with other values", one.values),
    ]
    parts = []
    for what, words, count in kinds:
        if not count:
            continue
        rows = [each for each in one.rows if each.what == what][:_SHOWN]
        shown = [
            ", ".join(f"{name}={value}" for name, value in each.key.items())
            + (f" ({', '.join(each.columns)})" if each.columns else "")
            for each in rows
        ]
        more = f" and {count - len(shown):,} more" if count > len(shown) else ""
        parts.append(f"{counted(count, 'row')} {words}: {'; '.join(shown)}{more}")
    counts = f"{counted(one.source_rows, 'row')} in the source, {one.copy_rows:,} in the copy"
    return f"{one.range}: {counts}. " + ". ".join(parts)
