"""Which write mode a table of the pipeline file has."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from lakefeed.files.parquet import FileTarget
from lakefeed.pipeline.pipeline import Table
from lakefeed.tables.shape import Shape
from lakefeed.tables.write.append import AppendMode
from lakefeed.tables.write.deduplicate import DedupeRules, DeduplicateMode
from lakefeed.tables.write.history import HistoryMode
from lakefeed.tables.write.keyed import HistoryRules, KeyRules
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.keyed.layout import Layout
from lakefeed.tables.write.keyed.merge_on_read import MergeOnRead
from lakefeed.tables.write.mode import WriteMode
from lakefeed.tables.write.overwrite import OverwriteMode
from lakefeed.tables.write.replace import ReplaceMode
from lakefeed.tables.write.upsert import UpsertMode

_TOMBSTONES = 2 * 24 * 3600.0
ENVELOPE = {"__op": "string", "__sequence": "string"}
"""Columns that a table of change events has besides those that it declares."""


def with_envelopes(spec: Table) -> Table:
    """What the file would say of a table whose events bring the sequence of their changes."""
    columns = spec.columns
    if columns is not None:
        columns = {**ENVELOPE, **columns}
    return spec.model_copy(update={"sequence_by": spec.sequence_by or ("__sequence",), "columns": columns})


def key_rules(spec: Table) -> KeyRules:
    """What tells the rows of a table apart."""
    return KeyRules(spec.keys, spec.sequence_by, spec.ignore_nulls)


def history_rules(spec: Table) -> HistoryRules:
    """The same of a table with the history of its rows."""
    # Where an event came from is not what it says, and where a row lies neither.
    derived = (field.name for field in spec.partition_fields if field.derived)
    untracked = (
        *spec.track_except,
        *spec.metadata_columns.schema.names,
        *derived,
        *ENVELOPE,
        "__deleted",
        "__ts_ms",
    )
    return HistoryRules(
        spec.keys,
        spec.sequence_by,
        spec.ignore_nulls,
        spec.valid_from or "valid_from",
        spec.valid_to or "valid_to",
        spec.is_current,
        spec.track,
        untracked,
    )


def interval_fields(spec: Table, columns: pa.Schema) -> list[pa.Field]:
    """The columns of the interval of each row, in a table of history with these columns."""
    if spec.mode != "history" or not set(spec.sequence_by) <= set(columns.names):
        return []
    kind = history_rules(spec).moment_type(columns)
    return [pa.field(name, pa.bool_() if name == spec.is_current else kind) for name in spec.interval]


def mode_of(pipeline: str, spec: Table, targets: Callable[[Shape], FileTarget]) -> WriteMode:
    """The mode of a table; `targets` says how its files are written."""
    if spec.query:
        return ReplaceMode()
    match spec.mode:
        case "overwrite":
            return OverwriteMode(pipeline)
        case "upsert":
            age = spec.tombstones or _TOMBSTONES
            return UpsertMode(pipeline, key_rules(spec), targets, _layout(spec), age)
        case "history":
            age = spec.tombstones or _TOMBSTONES
            return HistoryMode(pipeline, history_rules(spec), targets, _layout(spec), age)
        case "deduplicate":
            within = (spec.within.column, spec.within.age) if spec.within else ()
            return DeduplicateMode(DedupeRules(spec.keys, *within), targets)
        case _:
            return AppendMode()


def _layout(spec: Table) -> Layout:
    return MergeOnRead() if spec.updates == "merge_on_read" else CopyOnWrite()
