"""Which write mode a table of the pipeline file has."""

from __future__ import annotations

from collections.abc import Callable

from lakefeed.files.parquet import FileTarget
from lakefeed.pipeline.pipeline import Table
from lakefeed.tables.shape import Shape
from lakefeed.tables.write.append import AppendMode
from lakefeed.tables.write.deduplicate import DedupeRules, DeduplicateMode
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.copy_on_write import CopyOnWrite
from lakefeed.tables.write.mode import WriteMode
from lakefeed.tables.write.overwrite import OverwriteMode
from lakefeed.tables.write.replace import ReplaceMode
from lakefeed.tables.write.upsert import UpsertMode

_TOMBSTONES = 2 * 24 * 3600.0


def key_rules(spec: Table) -> KeyRules:
    """What tells the rows of a table apart."""
    return KeyRules(spec.keys, spec.sequence_by, spec.ignore_nulls)


def mode_of(pipeline: str, spec: Table, targets: Callable[[Shape], FileTarget]) -> WriteMode:
    """The mode of a table; `targets` says how its files are written."""
    if spec.query:
        return ReplaceMode()
    match spec.mode:
        case "overwrite":
            return OverwriteMode(pipeline)
        case "upsert":
            age = spec.tombstones or _TOMBSTONES
            return UpsertMode(pipeline, key_rules(spec), targets, CopyOnWrite(), age)
        case "deduplicate":
            within = (spec.within.column, spec.within.age) if spec.within else ()
            return DeduplicateMode(DedupeRules(spec.keys, *within), targets)
        case _:
            return AppendMode()
