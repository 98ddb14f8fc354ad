"""Table properties: which may be set here, to what, and how they are set and taken away."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deltalake import CommitProperties, DeltaTable

from lakefeed.errors import Conflict, TableError, UsageError
from lakefeed.pipeline.options.properties import property_problem
from lakefeed.tables.allow_vectors import lacking_features, set_properties
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import extent
from lakefeed.tables.operations.operation import CommitInfo, Report, change
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.retention import DELETED_FILES, LOG_ENTRIES, interval_seconds
from lakefeed.tables.table import LakeTable, only_known
from lakefeed.text import did_you_mean
from lakefeed.units import parse_size


def _flag(text: str) -> None:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"expected true or false, got {text!r}")


def _number(text: str) -> None:
    if not re.fullmatch(r"-?\d+", text):
        raise ValueError(f"expected a whole number, got {text!r}")


def _names(text: str) -> None:
    if not text.strip():
        raise ValueError("expected names of columns, separated by commas")


_KNOWN: dict[str, Callable[[str], object]] = {
    "delta.appendOnly": _flag,
    "delta.autoOptimize.autoCompact": _flag,
    "delta.autoOptimize.optimizeWrite": _flag,
    "delta.checkpointInterval": _number,
    "delta.checkpoint.writeStatsAsJson": _flag,
    "delta.checkpoint.writeStatsAsStruct": _flag,
    "delta.dataSkippingNumIndexedCols": _number,
    "delta.dataSkippingStatsColumns": _names,
    DELETED_FILES: interval_seconds,
    "delta.enableChangeDataFeed": _flag,
    "delta.enableExpiredLogCleanup": _flag,
    LOG_ENTRIES: interval_seconds,
    "delta.randomizeFilePrefixes": _flag,
    "delta.targetFileSize": parse_size,
    "delta.tuneFileSizesForRewrites": _flag,
}
"""Properties of Delta that change no feature beyond the change data feed, and what reads their values."""


@dataclass(frozen=True)
class PropertiesPlan:
    """Which properties would change; nothing has been changed."""

    version: int
    before: Mapping[str, str]
    changed: Mapping[str, str]
    unset: tuple[str, ...]

    @property
    def nothing(self) -> bool:
        """Whether the table has these properties already."""
        return not self.changed and not self.unset


def plan(table: LakeTable, wanted: Mapping[str, str], unset: Sequence[str] = ()) -> PropertiesPlan:
    """Compare with what the table has. Raises UsageError for a property that cannot be set or read here."""
    refuse_unkept(table, "properties")
    table.refresh()
    for name, value in wanted.items():
        _check(name, value)
    have = table.properties
    gone = tuple(name for name in unset if name in have)
    for name in gone:
        if name.startswith(("delta.columnMapping.", "delta.constraints.", "delta.rowTracking.")):
            raise UsageError(f"--unset {name}: the table's files depend on it. Use the engine that set it.")
    if gone and not table.writes_entries:
        raise UsageError(
            f"--unset {gone[0]}: only in a store with conditional writes; in this one, --set another value."
        )
    changed = {name: value for name, value in wanted.items() if have.get(name) != value}
    found = PropertiesPlan(table.version, have, changed, gone)
    if changed and table.delta.protocol().min_reader_version > 2:
        _refuse_unasked_features(table, changed)
    return found


def run(table: LakeTable, plan: PropertiesPlan, commit_info: CommitInfo) -> Report:
    """Change the properties in one commit."""
    whole = extent(data_files(table))
    info = {**commit_info, "set": dict(plan.changed), "unset": list(plan.unset)}
    if plan.nothing:
        return Report("properties", whole, whole)
    if table.writes_entries and not lacking_features(table, plan.changed):
        return Report("properties", whole, whole, (_alter(table, plan, info),))
    made = change(table, info, lambda delta, properties: _set(delta, plan.changed, properties))
    if plan.unset:
        made += (_alter(table, plan, info),)
    return Report("properties", whole, whole, made)


def _refuse_unasked_features(table: LakeTable, changed: Mapping[str, str]) -> None:
    if lacking_features(table, changed) or not table.writes_entries:
        raise TableError(
            f"{table.path}: delta-rs would add features to it that nobody asked for.\n"
            "Set the property with the engine that wrote the table, such as Spark."
        )


def _set(delta: DeltaTable, changed: Mapping[str, str], properties: CommitProperties) -> None:
    delta.alter.set_table_properties(
        dict(changed), raise_if_not_exists=only_known(changed), commit_properties=properties
    )


def _check(name: str, value: str) -> None:
    problem = property_problem(name, value)
    if problem:
        raise UsageError(f"--set {name}={value}: {problem}.")
    if not name.lower().startswith("delta."):
        return
    reads = _KNOWN.get(name)
    if reads is None:
        near = did_you_mean(name, _KNOWN)
        raise UsageError(
            f"--set {name}: not a property that can be set here{near or '.'}\n"
            "A property that changes what a table's files are is set with the engine that writes them."
        )
    try:
        reads(value)
    except ValueError as error:
        raise UsageError(f"--set {name}={value}: {error}") from error


def _alter(table: LakeTable, plan: PropertiesPlan, commit_info: CommitInfo) -> int:
    """Commit the table's metadata with other properties, and nothing else."""
    table.refresh()
    version = set_properties(table, plan.changed, commit_info, plan.unset)
    if version is None:
        raise Conflict(
            f"{table.path}: another writer changed the table meanwhile; nothing was committed.\nRun it again."
        )
    return version
