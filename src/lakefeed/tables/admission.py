"""Which tables may be fed: the one list of versions, features, properties and types that an append can keep.

What is not on it asks something of each commit that Lakefeed does not do, or that delta-rs, which commits on
object stores, cannot do. Such a table is refused by name, before a row is written to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from lakefeed.columns.mapping import ID, MODE, PHYSICAL_NAME
from lakefeed.errors import TableError
from lakefeed.tables.column_mapping import without_mapping
from lakefeed.tables.shape import Shape
from lakefeed.text import listed

_NEWEST_READER = 3
_NAMES_FEATURES = 7
"""The writer version from which on a table names the features that a writer must know."""
_LEGACY = frozenset(range(1, 6))
"""Older writer versions, which stand for features that are looked for in the schema and the properties.

6 is missing: it is for identity columns, and delta-rs does not write it.
"""

FED = frozenset(
    {
        # They ask nothing of a commit that only adds files.
        "appendOnly",
        "changeDataFeed",
        "timestampNtz",
        # A file that is added has no vector, and one that is removed is named with the one that it has.
        "deletionVectors",
        # What files and log call a column is in its metadata; see `lakefeed.columns.mapping`.
        "columnMapping",
        # They ask nothing as long as no column, property or constraint uses them; see `_in_use`.
        "checkConstraints",
        "generatedColumns",
        "invariants",
    }
)
"""Features that a table may name and be fed."""

_TYPES = frozenset(
    (
        *("byte", "short", "integer", "long", "float", "double", "boolean"),
        *("string", "binary", "date", "timestamp", "timestamp_ntz"),
    )
)
_IN_COLUMNS = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generation expression",
    "CURRENT_DEFAULT": "a default",
    "delta.identity.": "an identity",
}
"""What a writer would have to check or fill in, by how the metadata of a column names it."""


def refuse_unfit(shape: Shape, path: str) -> None:
    """Raise TableError for a table that may not be fed, with the name of what stands against it."""
    for refusal in _refusals(shape, path):
        raise TableError(f"{path}: {refusal}")


def _refusals(shape: Shape, path: str) -> Iterator[str]:
    yield from _in_use(shape, path)
    unknown = sorted(shape.features - FED)
    if unknown:
        yield (
            f"the table uses {listed(unknown)}, which Lakefeed does not write.\n"
            f"Drop it with the engine that set it (Spark: ALTER TABLE delta.`{path}` DROP FEATURE "
            f"{unknown[0]}), or choose another path."
        )
    writes = shape.writer in _LEGACY or shape.writer == _NAMES_FEATURES
    if not writes or shape.reader > _NEWEST_READER:
        yield (
            f"the table has protocol {shape.reader}/{shape.writer}, which Lakefeed does not write.\n"
            "Choose another path."
        )
    yield from _columns(orjson.loads(shape.columns))


def _in_use(shape: Shape, path: str) -> Iterator[str]:
    """What a property turns on, whichever version or feature allows for it."""
    properties = shape.properties
    expiry = properties.get("delta.setTransactionRetentionDuration")
    if expiry:
        yield (
            f"delta.setTransactionRetentionDuration is {expiry!r}, so positions would expire and "
            "events would be repeated.\n"
            "Unset the property, then start again."
        )
    if shape.is_mapped:
        yield from _mapping(shape)
    for name, value in properties.items():
        prefix, _, constraint = name.rpartition("delta.constraints.")
        if not prefix and constraint != name:
            yield (
                f"the table has the CHECK constraint {constraint} ({value}), which Lakefeed does not check.\n"
                f"Drop it with the engine that set it (Spark: ALTER TABLE delta.`{path}` DROP CONSTRAINT "
                f"{constraint}), or choose another path."
            )


def _mapping(shape: Shape) -> Iterator[str]:
    """What keeps a table with column mapping from being written: a mode or columns that are not known."""
    mode = shape.properties[MODE]
    if mode not in ("name", "id"):
        yield f"{MODE} is {mode!r}, which Lakefeed does not know.\nChoose another path."
    if not ("columnMapping" in shape.features or (shape.writer in (5, 6) and shape.reader >= 2)):
        yield f"{MODE} is {mode!r}, and its protocol has no column mapping.\nChoose another path."
    for path in without_mapping(orjson.loads(shape.columns)):
        yield (
            f"{MODE} is {mode!r}, and column {path} has no {ID} or {PHYSICAL_NAME}.\nChoose another path, or "
            "repair the table with the engine that set the property."
        )
        return


def _columns(struct: dict[str, Any], above: str = "") -> Iterator[str]:
    for column in struct["fields"]:
        name = f"{above}{column['name']}"
        for key, value in column["metadata"].items():
            kind = next((words for sign, words in _IN_COLUMNS.items() if key.startswith(sign)), None)
            if kind:
                yield (
                    f"column {name} has {kind} ({key}: {str(value)[:80]}), which Lakefeed does not keep.\n"
                    "Choose another path, and let the engine that set it fill this table from there."
                )
        yield from _types(column["type"], name)


def _types(kind: Any, name: str) -> Iterator[str]:
    if isinstance(kind, str):
        if kind not in _TYPES and not kind.startswith("decimal"):
            yield _of_type(name, kind)
    elif kind["type"] == "struct":
        yield from _columns(kind, f"{name}.")
    elif kind["type"] == "array":
        yield from _types(kind["elementType"], f"{name}.element")
    elif kind["type"] == "map":
        if kind["keyType"] != "string":
            yield _of_type(name, "a map whose keys are not text")
        yield from _types(kind["valueType"], f"{name}.value")


def _of_type(column: str, kind: str) -> str:
    return (
        f"column {column} is {kind}, which Lakefeed does not write.\n"
        "Choose another path, or drop the column with the engine that made it."
    )


def replaced(path: str, version: int) -> TableError:
    """A log that is not the one that was read."""
    return TableError(
        f"{path}: version {version} of its log is not the one that was read: the table was "
        f"deleted or created again, or another writer overwrote the entry.\nLakefeed has stopped "
        f"writing to it. Look at its history, then start again: the run continues at the positions in "
        f"the log."
    )


def unwritable(path: str) -> TableError:
    """An entry that only Lakefeed can write, in a log to which only delta-rs may."""
    return TableError(
        f"{path}: deletion vectors, a change data feed and column mapping can be written only to a store "
        "with conditional writes.\nUse `updates: copy_on_write` without delta.enableChangeDataFeed and "
        "without `names: keep`, or another engine, such as Spark."
    )
