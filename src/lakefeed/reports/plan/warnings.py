"""What the owner of a table should know before a run: layouts that hurt, memories that are too short."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from shlex import quote

from lakefeed.columns.inferred import mixed
from lakefeed.events import Offsets
from lakefeed.handles.handle import TableHandle
from lakefeed.reports.plan.shaped_sample import SampleOutcome
from lakefeed.sources import Finding
from lakefeed.tables.data_files import data_files
from lakefeed.tables.detail.advice import advice
from lakefeed.tables.detail.spark_writers import spark_beside
from lakefeed.tables.log.data_file import by_partition
from lakefeed.tables.positions import named_partition
from lakefeed.tables.rewrite.memory import beyond_memory
from lakefeed.tables.table import LakeTable
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

    def look_at_findings(
        self, source: str, findings: list[Finding], handles: Mapping[str, TableHandle]
    ) -> None:
        """Look at what a source says of itself and of the streams that each table takes."""
        for name, handle in handles.items():
            for one in (each for each in findings if each.state != "ok"):
                if one.stream is None or (handle.spec and handle.spec.takes(one.stream)):
                    self.add(name, f"{source}: {one.text}" + (f": {one.remedy}" if one.remedy else ""))

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
        if not events or refused < _SAMPLE_SHARE * events:
            return
        errors = [error for one in samples for error in one.errors]
        proposals = [one.new_columns for one in samples if one.new_columns is not None]
        names = list(dict.fromkeys(name for new in proposals for name in mixed(new, errors)))
        taken = sum(one.misfits[name] for one in samples for name in names)
        if taken:
            self._found[handle.name].append(
                f"{refused:,} of {events:,} sampled events ({refused / events:.1%}) would become dead "
                f"letters; to take {'them all' if taken == refused else f'{taken:,} of them'}, "
                f"{_as_json(handle, names)}"
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


def _as_json(handle: TableHandle, names: list[str]) -> str:
    """What makes columns `json`: a line of `schema`, and a command for those that the table has by now."""
    there = handle.table.schema.names if handle.exists else []
    declared = handle.spec.declared.names if handle.spec and handle.spec.declared is not None else []
    new = [f"{name}: json" for name in names if name not in there or name in declared]
    old = " ".join(f"--column {quote(f'{name} json')}" for name in names if name in there)
    steps = (
        [f"stop the pipeline and run `lakefeed table replace {quote(handle.path)} {old} --yes`"]
        if old
        else []
    )
    return " and ".join([*steps, *([f"declare `schema: {{{', '.join(new)}}}`"] if new else [])])


def _seconds(text: str | None) -> float | None:
    found = _INTERVAL.fullmatch(text or "")
    unit = _UNITS.get(found[2].lower()) if found else None
    return int(found[1]) * unit if found and unit else None
