"""Which write mode a table of the pipeline file has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefeed.columns.change_columns import CHANGE_FEED, DEBEZIUM, POSTGRES, ChangeColumns
from lakefeed.files.parquet import FileTarget
from lakefeed.pipeline.pipeline import Table
from lakefeed.tables.log.change_feed import TIMESTAMP, TYPE, VERSION
from lakefeed.tables.shape import Shape
from lakefeed.tables.write.append import AppendMode
from lakefeed.tables.write.mode import WriteMode
from lakefeed.tables.write.overwrite import OverwriteMode
from lakefeed.tables.write.replace import ReplaceMode

# Modes with keys are imported where a table has one: they are a tenth of what `lakefeed status` imports.
if TYPE_CHECKING:
    from lakefeed.tables.write.keyed import HistoryRules, KeyRules
    from lakefeed.tables.write.keyed.layout import Layout

_TOMBSTONES = 2 * 24 * 3600.0
_RENAMED = {TYPE: "__op", VERSION: "__sequence", TIMESTAMP: "__timestamp"}
"""No table with these columns could have a change feed of its own: the names are the protocol's."""


def with_envelopes(spec: Table, brought: ChangeColumns) -> Table:
    """What the file would say of a table whose events bring the sequence of their changes."""
    columns = spec.columns
    if columns is not None:
        columns = {**brought.types, **columns}
    return spec.model_copy(update={"sequence_by": spec.sequence_by or brought.sequence, "columns": columns})


def with_feed(spec: Table, keys: tuple[str, ...]) -> Table:
    """The same where a change feed does; `keys` are those of the table that has it, if they are known."""
    found = with_envelopes(spec, CHANGE_FEED)
    renamed = {"rename": {**_RENAMED, **spec.rename}, "drop": (*spec.drop, *CHANGE_FEED.types)}
    return found.model_copy(update={"keys": spec.keys or keys, **renamed})


def key_rules(spec: Table) -> KeyRules:
    """What tells the rows of a table apart."""
    from lakefeed.tables.write.keyed import KeyRules

    return KeyRules(spec.keys, spec.sequence_by, spec.ignore_nulls, _from_feed(spec))


def _from_feed(spec: Table) -> bool:
    return spec.rename.get(VERSION) == _RENAMED[VERSION]


def history_rules(spec: Table) -> HistoryRules:
    """The same of a table with the history of its rows."""
    from lakefeed.tables.write.keyed import HistoryRules

    # Where an event came from is not what it says, and where a row lies neither.
    derived = (field.name for field in spec.partition_fields if field.derived)
    untracked = (
        *spec.track_except,
        *spec.metadata_columns.schema.names,
        *derived,
        *DEBEZIUM.names,
        *CHANGE_FEED.names,
        *POSTGRES.names,
    )
    return HistoryRules(
        spec.keys,
        spec.sequence_by,
        spec.ignore_nulls,
        _from_feed(spec),
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
            from lakefeed.tables.write.upsert import UpsertMode

            age = spec.tombstones or _TOMBSTONES
            return UpsertMode(pipeline, key_rules(spec), targets, _layout(spec), age)
        case "history":
            from lakefeed.tables.write.history import HistoryMode

            age = spec.tombstones or _TOMBSTONES
            return HistoryMode(pipeline, history_rules(spec), targets, _layout(spec), age)
        case "deduplicate":
            from lakefeed.tables.write.deduplicate import DedupeRules, DeduplicateMode

            within = (spec.within.column, spec.within.age) if spec.within else ()
            return DeduplicateMode(DedupeRules(spec.keys, *within), targets)
        case _:
            return AppendMode()


def _layout(spec: Table) -> Layout:
    from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
    from lakefeed.tables.write.keyed.merge_on_read import MergeOnRead

    return MergeOnRead() if spec.updates == "merge_on_read" else CopyOnWrite()
