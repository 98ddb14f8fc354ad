"""What the owner of a table should know before a run: layouts that hurt, memories that are too short."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from shlex import quote

import orjson
import pyarrow as pa

from lakefeed.columns.column_types import column, type_text
from lakefeed.columns.inferred import mixed
from lakefeed.columns.widening import merged_proposals
from lakefeed.errors import TableError
from lakefeed.events import Events, Offsets
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.shaping_digest import rebuild_problem
from lakefeed.reports.plan.sample import ADVISED_ABOVE
from lakefeed.reports.plan.shaped_sample import SampleOutcome
from lakefeed.sources import Finding, Source, folded
from lakefeed.tables.data_files import data_files
from lakefeed.tables.detail.advice import advice
from lakefeed.tables.detail.spark_writers import spark_beside
from lakefeed.tables.log.data_file import by_partition, row_count
from lakefeed.tables.positions import named_partition, rows_by_shaping
from lakefeed.tables.rewrite.memory import beyond_memory
from lakefeed.tables.schema import missing_columns
from lakefeed.tables.table import LakeTable
from lakefeed.text import counted, sentence, yaml_mapping
from lakefeed.units import format_duration

_DAY = 86_400.0
_SHORT_TABLE_MEMORY = 7 * _DAY
_SHORT_SOURCE_MEMORY = 3 * _DAY
"""A long weekend: what a pipeline that nobody looks at should survive."""

_SAMPLE_SHARE = 0.1
_SAMPLE_PARTITIONS = 50

_RETENTIONS = {
    "delta.logRetentionDuration": "verify and rewind look no further back",
    "delta.deletedFileRetentionDuration": "rewind goes no further back once the table is vacuumed",
}
_INTERVAL = re.compile(r"\s*(?:interval\s+)?(\d+)\s+(\w+?)s?\s*", re.IGNORECASE)
_UNITS = {"week": 7 * _DAY, "day": _DAY, "hour": 3600.0, "minute": 60.0, "second": 1.0, "millisecond": 0.001}


_DECIMAL_SIGN = re.compile("; (set `decimal: .*)")
"""What the error about a number in CSV says of its decimal sign."""
_MOST_WHOLE_FILES = 20
"""Records of a sample up to which each may be a whole file."""
_MANY_OBJECTS = 20
"""Objects of an array from which on they look like the records of a file."""


class Warnings:
    """Collects warnings by table."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._found: dict[str, list[str]] = defaultdict(list)

    def of(self, table: str) -> list[str]:
        """The warnings of a table."""
        return self._found[table]

    def add(self, table: str, text: str) -> None:
        """Keep a warning; an empty text is none."""
        self._found[table] += [text] if text else []

    def look_at_table(self, handle: TableHandle, table: LakeTable) -> None:
        """Look at who writes to the table, and at what its own statistics advise."""
        self._writers(handle, table)
        self.add(handle.name, spark_beside(table) or "")
        self._found[handle.name] += advice(table)
        if handle.spec and handle.spec.cluster_by and handle.upkeep and handle.upkeep.engine != "spark":
            self._memory(handle.name, table)

    def look_at_shaping(self, handle: TableHandle, table: LakeTable, digest: str) -> None:
        """Look whether rows were made with other shaping options than the file has now."""
        if handle.spec is None or rebuild_problem(handle.spec):
            return
        others = rows_by_shaping(table.transactions, self._pipeline)
        others.pop(digest, None)
        rows = row_count(data_files(table)) if any(others.values()) else None
        count = min(sum(others.values()), rows or 0)
        if count:
            self.add(
                handle.name,
                f"{count:,} of {counted(rows or 0, 'row')} {'was' if count == 1 else 'were'} made with other "
                "options (`select`, `where`, `schema` ...) than the file has now; to make all rows anew: "
                f"lakefeed rebuild {handle.file} --table {handle.name} --yes",
            )

    def look_at_findings(
        self, source: str, findings: list[Finding], handles: Mapping[str, TableHandle]
    ) -> None:
        """Look at what a source says of itself and of the streams that each table takes."""
        for name, handle in handles.items():
            found = (each for each in findings if each.state in ("warn", "fail") or _is_of_table(each))
            spec = handle.spec
            own = (one for one in found if one.stream is None or (spec and spec.takes(one.stream)))
            for one, same in folded(own):
                words = (sentence(one.text), same, one.remedy)
                self.add(name, f"{source}: " + " ".join(word for word in words if word).removesuffix("."))

    def look_at_retention(self, table: str, source: str, retention: dict[str, float]) -> None:
        """Look at how long a source keeps its events."""
        for name, seconds in sorted(retention.items()):
            if seconds < _SHORT_SOURCE_MEMORY:
                kept = format_duration(seconds)
                self._found[table].append(
                    f"{source}: {name} keeps events for {kept}: an outage longer than that loses some"
                )

    def look_at_age(self, table: str, source: str, retention: dict[str, float], age: float | None) -> None:
        """Look whether a source still keeps what a table has not read yet."""
        for name, seconds in sorted(retention.items()):
            if age is not None and age > seconds / 2:
                behind = format_duration(float(round(age / 3600) * 3600 if age > _DAY else round(age)))
                self._found[table].append(
                    f"{source}: the table is behind by {behind}, and {name} is kept for "
                    f"{format_duration(seconds)}: what is not read by then is lost; let the pipeline run"
                )

    def look_at_positions(self, table: str, source: str, held: Offsets, start: Offsets) -> None:
        """Look at positions that the source no longer serves, where the file says to skip."""
        for partition, wanted in sorted(held.items()):
            going_on = start.get(partition, wanted)
            if going_on != wanted:
                self._found[table].append(
                    f"{source}: {partition}: offset {wanted} no longer exists; a run continues at offset "
                    f"{going_on} (`on_data_loss: skip`)"
                )

    def look_at_records(
        self, name: str, source: Source, sampled: Sequence[Events], handles: Mapping[str, TableHandle]
    ) -> None:
        """Look for JSON files that are one record with an array of many objects."""
        is_json = source.reads_files and source.format is not None and source.format.type == "json"
        if not is_json or getattr(source, "records", None) or sum(map(len, sampled)) > _MOST_WHOLE_FILES:
            return
        payloads = [payload for events in sampled for payload in events.payloads if payload]
        counts = Counter[str]()
        for payload in payloads:
            counts |= _arrays(payload)
        for path, count in counts.most_common(1) if payloads else ():
            for table in handles:
                self.add(
                    table,
                    f"{name}: a file is one record, with {count:,} objects in `{path}`; "
                    f"to make each of them a row, set `sources.{name}.records: {path}`",
                )

    def look_at_encoding(self, table: str, name: str, source: Source, sample: SampleOutcome) -> None:
        """Look for text of files that is not UTF-8."""
        count = sample.dead_letters["not_utf8"]
        if count and source.reads_files and getattr(source, "encoding", None) is None:
            are = "record is" if count == 1 else "records are"
            self.add(
                table,
                f"{name}: {count:,} sampled {are} not UTF-8; to read another encoding, such as latin-1, set "
                f"`sources.{name}.encoding: latin-1`",
            )

    def look_at_sample(self, handle: TableHandle, samples: list[SampleOutcome]) -> None:
        """Look at refused events, at the partitions that they would be spread over, and at the properties."""
        assert handle.spec is not None
        self._refusals(handle, samples)
        rows, partitions = sum(one.rows for one in samples), sum(one.partitions for one in samples)
        if partitions > _SAMPLE_PARTITIONS and partitions > rows * _SAMPLE_SHARE:
            self._found[handle.name].append(
                f"partition_by {list(handle.spec.partition_by)}: {partitions:,} different values in {rows:,} "
                "sampled rows, and each batch writes a file for each; partition by something coarser"
            )
        for name, consequence in _RETENTIONS.items() if not handle.exists else ():
            text = handle.spec.properties.get(name)
            seconds = _seconds(text)
            if text is not None and seconds is not None and seconds < _SHORT_TABLE_MEMORY:
                self._found[handle.name].append(f"{name} is {text}: {consequence}")

    def _refusals(self, handle: TableHandle, samples: list[SampleOutcome]) -> None:
        """Look whether columns that were inferred from the events refuse a tenth of them."""
        events, refused = sum(one.events for one in samples), sum(one.refused for one in samples)
        if not events or refused < ADVISED_ABOVE * events:
            return
        errors = [error for one in samples for error in one.errors]
        signs = Counter(found[1] for error in errors if (found := _DECIMAL_SIGN.search(error)))
        if signs.total() > len(errors) / 2:
            # No other type of a column is the way out.
            self._found[handle.name].append(f"{_share(refused, events)}; {signs.most_common(1)[0][0]}")
            return
        if any(one.remedy for one in samples):
            self._remedies(handle, samples)
            return
        proposals = [one.new_columns for one in samples if one.new_columns is not None]
        unfit = {name for one in samples for name in one.unfit}
        names = list(
            dict.fromkeys(name for new in proposals for name in mixed(new, [*errors, *sorted(unfit)]))
        )
        taken = sum(one.misfits[name] for one in samples for name in names)
        kinds = {name: "string" if name in unfit else "json" for name in names}
        self._advise(handle, samples, taken, kinds)

    def _remedies(self, handle: TableHandle, samples: list[SampleOutcome]) -> None:
        """Advise the types of all columns that refuse events of any source."""
        kinds: dict[str, str] = {}
        remedies = [one.remedy for one in samples if one.remedy]
        for remedy in remedies:
            for name, kind in remedy.types.items():
                kinds[name] = kind if kinds.get(name, kind) == kind else "json"
        self._advise(handle, samples, sum(one.taken for one in remedies), kinds)

    def _advise(
        self, handle: TableHandle, samples: list[SampleOutcome], taken: int, kinds: Mapping[str, str]
    ) -> None:
        if taken:
            seen = merged_proposals(handle.events(), *(one.new_columns for one in samples)) or pa.schema([])
            refused = sum(one.refused for one in samples)
            events = sum(one.events for one in samples)
            which = "them all" if taken == refused else f"{taken:,} of them"
            self._found[handle.name].append(
                f"{_share(refused, events)}; to take {which}, {_declared_as(handle, kinds, seen)}"
            )

    def _memory(self, name: str, table: LakeTable) -> None:
        """Look whether the largest partition can be put in order on this machine."""
        groups = by_partition(data_files(table)).values()
        largest = max(groups, key=lambda files: sum(file.size for file in files), default=[])
        if too_large := beyond_memory(table, largest):
            self._found[name].append(too_large)

    def _writers(self, handle: TableHandle, table: LakeTable) -> None:
        assert handle.spec is not None
        warn = self._found[handle.name].append
        held = [name.split("/")[:2] for name in table.transactions if named_partition(name)]
        others = sorted({pipeline for pipeline, _ in held if pipeline != self._pipeline})
        ours = {source for pipeline, source in held if pipeline == self._pipeline}
        for name in others:
            warn(f"pipeline {name} has written to this table too; make sure that both are meant to")
        for source in sorted(ours - set(handle.spec.from_)):
            warn(
                f"the table has positions of a source {source}, which does not feed it in this file: it was "
                f"renamed, or another pipeline is called {self._pipeline} as well"
            )
        if not held and table.version > 0 and not handle.spec.query:
            warn(
                "the table exists, but has no position of this pipeline: the run begins at `start`, and "
                "events that the table already has are written a second time"
            )


def _share(refused: int, events: int) -> str:
    return f"{refused:,} of {events:,} sampled events ({refused / events:.1%}) would become dead letters"


def _declared_as(handle: TableHandle, kinds: Mapping[str, str], seen: pa.Schema) -> str:
    """What gives columns these types: a line of `schema`, and a command for columns that the table has.

    `seen` are the columns of the events.
    """
    if handle.spec is not None and handle.spec.reshapes:
        return _declared_for_sql(handle, kinds, seen)
    there = handle.table.schema.names if handle.exists else []
    declared = handle.spec.declared.names if handle.spec and handle.spec.declared is not None else []
    new = {name: kind for name, kind in kinds.items() if name not in there or name in declared}
    old = " ".join(f"--column {quote(f'{name} {kind}')}" for name, kind in kinds.items() if name in there)
    steps = (
        [f"stop the pipeline and run `lakefeed table replace {quote(handle.path)} {old} --yes`"]
        if old
        else []
    )
    return " and ".join([*steps, *([f"declare `schema: {yaml_mapping(new)}`"] if new else [])])


def _declared_for_sql(handle: TableHandle, kinds: Mapping[str, str], seen: pa.Schema) -> str:
    """The `schema` for events of which `select` or a function makes other columns: all that it reads.

    Where these would get other types than the table has, all rows are to be made anew.
    """
    shaping = handle.shaping
    assert shaping is not None
    types = {name: column(name, kind).type for name, kind in kinds.items()}
    events = pa.schema([one.with_type(types.get(one.name, one.type)) for one in seen])
    with suppress(TableError):
        events = shaping.needed(events)
    shown = events if shaping.spec.declared is None else [one for one in events if one.name in kinds]
    text = f"declare `schema: {yaml_mapping({one.name: type_text(one.type) for one in shown})}`"
    if not handle.exists or shaping.spec.python or not _changes_types(handle, events):
        return text
    again = f"lakefeed rebuild {handle.file} --table {handle.name} --yes"
    return f"{text}, which changes the types that the table has, and then run `{again}`"


def _changes_types(handle: TableHandle, events: pa.Schema) -> bool:
    """Whether `select` makes columns of events with these types that the table has in others."""
    assert handle.shaping is not None
    have = handle.table.schema
    try:
        missing_columns(have, handle.shaping.lacking(handle.name, have, handle.shaping.made(events)))
    except TableError:
        return True
    return False


def _arrays(payload: bytes) -> Counter[str]:
    """How many objects the arrays of a JSON object hold, by key, of those with many."""
    try:
        record = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return Counter()
    members = record.items() if isinstance(record, dict) else ()
    lists = {key: value for key, value in members if isinstance(value, list) and "." not in key}
    return Counter(
        {
            key: len(value)
            for key, value in lists.items()
            if len(value) >= _MANY_OBJECTS and isinstance(value[0], dict)
        }
    )


def _seconds(text: str | None) -> float | None:
    found = _INTERVAL.fullmatch(text or "")
    unit = _UNITS.get(found[2].lower()) if found else None
    return int(found[1]) * unit if found and unit else None


def _is_of_table(finding: Finding) -> bool:
    """Whether a finding says something about the table of a stream that is read."""
    return finding.state == "ok" and finding.stream is not None
