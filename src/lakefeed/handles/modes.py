"""Which write mode a table of the pipeline file has."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefeed.columns.change_columns import (
    CHANGE_FEED,
    DEBEZIUM,
    POSTGRES,
    ROW_COUNT,
    WHOLE_ROW,
    WHOLE_ROW_TYPES,
    ChangeColumns,
)
from lakefeed.files.parquet import FileTarget
from lakefeed.pipeline.options.shaping import has_star
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
        timed = {spec.time_by: "timestamp"} if spec.time_by and spec.time_by in brought.others else {}
        whole_rows = WHOLE_ROW_TYPES if spec.keys == WHOLE_ROW else {}
        stream = {spec.stream_key: "string"} if spec.stream_key else {}
        # No event is refused, and nothing of it rescued, for what its source says of every change.
        further = brought.others if spec.evolve.new_column in ("rescue", "dead_letter") else {}
        columns = {**brought.types, **whole_rows, **stream, **timed, **further, **columns}
    update = {"sequence_by": spec.sequence_by or brought.sequence, "columns": columns}
    if spec.select and not has_star(spec.select):
        needed = (*brought.types, *([spec.stream_key] if spec.stream_key else ()))
        update["select"] = (*spec.select, *(one for one in needed if not _makes(spec.select, one)))
    if brought.logged:
        update["drop"] = (*spec.drop, *(name for name in brought.logged if name not in spec.drop))
    return spec.model_copy(update=update)


def _makes(select: Sequence[str], column: str) -> bool:
    """Whether an item of `select` gives the table this column: `_lsn`, or `bigint(at) AS _lsn`."""
    last = re.compile(rf"(?:.*[\s`.)])?{re.escape(column)}`?\s*", re.IGNORECASE | re.DOTALL)
    return any(last.fullmatch(text) for text in select)


def with_feed(spec: Table, keys: tuple[str, ...]) -> Table:
    """The same where a change feed does; `keys` are those of the table that has it, if they are known."""
    found = with_envelopes(spec, CHANGE_FEED)
    renamed = {"rename": {**_RENAMED, **spec.rename}, "drop": (*spec.drop, *CHANGE_FEED.types)}
    return found.model_copy(update={"keys": spec.keys or keys, **renamed})


def key_rules(spec: Table, brought: ChangeColumns | None = None) -> KeyRules:
    """What tells the rows of a table apart; `brought` are the columns of change events, if it takes them."""
    from lakefeed.tables.write.keyed import KeyRules

    return KeyRules(
        spec.keys,
        spec.sequence_by,
        spec.ignore_nulls,
        _from_feed(spec),
        ties_by_position=brought is DEBEZIUM,
        positions=_positions(spec) if brought is DEBEZIUM else (),
        stream=spec.stream_key,
        counts=spec.rename.get(ROW_COUNT, ROW_COUNT) if spec.keys == WHOLE_ROW else None,
    )


def _positions(spec: Table) -> tuple[str, ...]:
    """What a table calls the sequence of change events."""
    (sequence,) = DEBEZIUM.sequence
    name = spec.rename.get(sequence, sequence)
    plain = re.compile(rf"\s*`?{re.escape(name)}`?\s+(?:as\s+)?`?(\w+)`?\s*", re.IGNORECASE)
    items = (plain.fullmatch(text) for text in spec.select or ())
    return (name, *(item[1] for item in items if item))


def _from_feed(spec: Table) -> bool:
    return spec.rename.get(VERSION) == _RENAMED[VERSION]


def history_rules(spec: Table, brought: ChangeColumns | None = None) -> HistoryRules:
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
        brought is DEBEZIUM,
        _positions(spec) if brought is DEBEZIUM else (),
        stream=spec.stream_key,
        valid_from=spec.valid_from or "valid_from",
        valid_to=spec.valid_to or "valid_to",
        is_current=spec.is_current,
        track=spec.track,
        track_except=untracked,
        time_by=spec.time_by,
    )


def open_until(spec: Table) -> str | None:
    """The column that is null in the rows of a history that hold now; None for other tables."""
    return (spec.valid_to or "valid_to") if spec.mode == "history" else None


def interval_fields(spec: Table, columns: pa.Schema) -> list[pa.Field]:
    """The columns of the interval of each row, in a table of history with these columns."""
    needed = {*spec.sequence_by, *([spec.time_by] if spec.time_by else ())}
    if spec.mode != "history" or not needed <= set(columns.names):
        return []
    kinds = history_rules(spec).interval_types(columns)
    return [pa.field(name, kinds[name]) for name in spec.interval]


def mode_of(
    pipeline: str, spec: Table, targets: Callable[[Shape], FileTarget], brought: ChangeColumns | None = None
) -> WriteMode:
    """The mode of a table; `targets` says how its files are written, `brought` is as in `key_rules`."""
    if spec.query:
        return ReplaceMode()
    match spec.mode:
        case "overwrite":
            return OverwriteMode(pipeline)
        case "upsert":
            from lakefeed.handles.retype import retyped
            from lakefeed.tables.write.upsert import UpsertMode

            age = spec.tombstones or _TOMBSTONES
            rules = key_rules(spec, brought)
            mode = UpsertMode(pipeline, rules, targets, _layout(spec), age, retyped)
            mode.follows_keys = brought is not None and brought.follows_keys
            return mode
        case "history":
            from lakefeed.handles.retype import retyped
            from lakefeed.tables.write.history import HistoryMode

            age = spec.tombstones or _TOMBSTONES
            rules = history_rules(spec, brought)
            history = HistoryMode(pipeline, rules, targets, _layout(spec), age, retyped)
            history.follows_keys = brought is not None and brought.follows_keys
            return history
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
